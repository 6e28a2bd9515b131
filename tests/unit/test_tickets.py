"""Tickets: one use, soon, as whoever asked."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from paddock.auth.tickets import LIFE, MOST, Tickets
from paddock.errors import QuotaExceeded, Unauthorized
from paddock.model.keys import Principal, Scope

ADA = Principal(tenant="default", key_id="key-1", scopes=frozenset({Scope.SANDBOXES_READ}))
BOB = Principal(tenant="other", key_id="key-2", scopes=frozenset({Scope.ADMIN}))


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def test_a_ticket_stands_for_who_asked_for_it_once() -> None:
    tickets = Tickets()
    ada, bob = tickets.issue(ADA), tickets.issue(BOB)
    assert tickets.redeem(bob.secret, "/x") == BOB
    assert tickets.redeem(ada.secret, "/x") == ADA
    with pytest.raises(Unauthorized, match="used"):
        tickets.redeem(ada.secret, "/x")


def test_a_ticket_expires() -> None:
    clock = Clock()
    tickets = Tickets(clock)
    ticket = tickets.issue(ADA)
    clock.now += LIFE
    with pytest.raises(Unauthorized, match="expired"):
        tickets.redeem(ticket.secret, "/x")


def test_a_ticket_for_one_path_is_worth_nothing_elsewhere_and_used_up_by_the_attempt() -> None:
    tickets = Tickets()
    ticket = tickets.issue(ADA, "/here")
    with pytest.raises(Unauthorized, match="/here only"):
        tickets.redeem(ticket.secret, "/there")
    with pytest.raises(Unauthorized):
        tickets.redeem(ticket.secret, "/here")


def test_a_key_cannot_have_any_number_of_them() -> None:
    clock = Clock()
    tickets = Tickets(clock)
    for _ in range(MOST):
        tickets.issue(ADA)
    with pytest.raises(QuotaExceeded):
        tickets.issue(ADA)
    tickets.issue(BOB)
    clock.now += LIFE + timedelta(seconds=1)
    tickets.issue(ADA)
