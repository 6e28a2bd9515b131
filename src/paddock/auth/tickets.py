"""One-time secrets that stand in for a key: tickets for WebSockets, codes for logins."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from paddock.auth.key_secrets import hash_key_secret
from paddock.errors import QuotaExceeded, Unauthorized
from paddock.model.keys import Principal

TICKET_LIFETIME = timedelta(seconds=60)
MAX_PER_KEY = 1000
"""Unused tickets per key."""


@dataclass(frozen=True)
class OneTimeTicket:
    """A one-time ticket."""

    secret: str
    expires_at: datetime


@dataclass(frozen=True)
class _IssuedTicket:
    principal: Principal
    path: str | None
    expires_at: datetime


class OneTimeTickets:
    """Issues and redeems tickets. They are kept in memory, so that none outlives the server."""

    prefix = "pdt_"
    lifetime = TICKET_LIFETIME
    invalid_message = "This ticket is unknown, used or has expired; ask for another at /v1/tickets."

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._now = now
        self._issued: dict[str, _IssuedTicket] = {}
        """By the hash of the secret, ordered by expiry."""
        self._count: Counter[str] = Counter()

    def issue(self, principal: Principal, path: str | None = None) -> OneTimeTicket:
        """Issue a ticket for a principal, valid once, and for one path only if given.

        Raises `QuotaExceeded` if the key has too many unused tickets.
        """
        self._remove_expired()
        if self._count[principal.key_id] >= MAX_PER_KEY:
            raise QuotaExceeded(
                f"this key has {MAX_PER_KEY} unused tickets; use them, or wait {self.lifetime.seconds} seconds"
            )
        ticket = OneTimeTicket(self.prefix + secrets.token_urlsafe(32), self._now() + self.lifetime)
        self._issued[hash_key_secret(ticket.secret)] = _IssuedTicket(principal, path, ticket.expires_at)
        self._count[principal.key_id] += 1
        return ticket

    def redeem(self, secret: str, path: str) -> Principal:
        """Use up a ticket and return its principal. Raises `Unauthorized`."""
        self._remove_expired()
        issued = self._remove(hash_key_secret(secret))
        if issued is None:
            raise Unauthorized(self.invalid_message)
        if issued.path is not None and issued.path != path:
            raise Unauthorized(f"This ticket is for {issued.path} only, and is used up now; ask for another.")
        return issued.principal

    def _remove(self, hashed: str) -> _IssuedTicket | None:
        issued = self._issued.pop(hashed, None)
        if issued is not None:
            key = issued.principal.key_id
            self._count[key] -= 1
            if not self._count[key]:
                del self._count[key]
        return issued

    def _remove_expired(self) -> None:
        now = self._now()
        while self._issued:
            hashed, oldest = next(iter(self._issued.items()))
            if oldest.expires_at > now:
                return
            self._remove(hashed)


class OneTimeLoginCodes(OneTimeTickets):
    """One-time codes that log a browser in as the principal that requested them."""

    prefix = "pdc_"
    lifetime = timedelta(minutes=2)
    invalid_message = "This code is unknown, used or has expired; ask for another with `paddock console`."
