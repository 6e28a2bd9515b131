"""Tickets work once, for a short time, with the rights of their principal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from paddock.auth.tickets import MAX_PER_KEY, TICKET_LIFETIME, OneTimeTickets
from paddock.errors import QuotaExceeded, Unauthorized
from paddock.model.keys import Principal, Scope

ADA = Principal(tenant="default", key_id="key-1", scopes=frozenset({Scope.SANDBOXES_READ}))
BOB = Principal(tenant="other", key_id="key-2", scopes=frozenset({Scope.ADMIN}))


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def test_ticket_authenticates_its_principal_once() -> None:
    tickets = OneTimeTickets()
    ada, bob = tickets.issue(ADA), tickets.issue(BOB)
    assert tickets.redeem(bob.secret, "/x") == BOB
    assert tickets.redeem(ada.secret, "/x") == ADA
    with pytest.raises(Unauthorized, match="used"):
        tickets.redeem(ada.secret, "/x")


def test_ticket_expires() -> None:
    clock = Clock()
    tickets = OneTimeTickets(clock)
    ticket = tickets.issue(ADA)
    clock.now += TICKET_LIFETIME
    with pytest.raises(Unauthorized, match="expired"):
        tickets.redeem(ticket.secret, "/x")


def test_ticket_for_one_path_is_used_up_by_another_path() -> None:
    tickets = OneTimeTickets()
    ticket = tickets.issue(ADA, "/here")
    with pytest.raises(Unauthorized, match="/here only"):
        tickets.redeem(ticket.secret, "/there")
    with pytest.raises(Unauthorized):
        tickets.redeem(ticket.secret, "/here")


def test_unused_tickets_per_key_are_limited() -> None:
    clock = Clock()
    tickets = OneTimeTickets(clock)
    for _ in range(MAX_PER_KEY):
        tickets.issue(ADA)
    with pytest.raises(QuotaExceeded):
        tickets.issue(ADA)
    tickets.issue(BOB)
    clock.now += TICKET_LIFETIME + timedelta(seconds=1)
    tickets.issue(ADA)
