"""What stands for a key once, and soon: tickets for WebSockets, codes for logging in."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from paddock.auth.secrets import digest
from paddock.errors import QuotaExceeded, Unauthorized
from paddock.model.keys import Principal

LIFE = timedelta(seconds=60)
MOST = 1000
"""Tickets that one key may have out at a time."""


@dataclass(frozen=True)
class Ticket:
    """Good for one connection, soon."""

    secret: str
    expires_at: datetime


@dataclass(frozen=True)
class _Issued:
    principal: Principal
    path: str | None
    expires_at: datetime


class Tickets:
    """All that are out. They live in memory, so that none outlives the server."""

    prefix = "pdt_"
    life = LIFE
    invalid = "This ticket is unknown, used or has expired; ask for another at /v1/tickets."

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._now = now
        self._issued: dict[str, _Issued] = {}
        """By the hash of the secret; in the order in which they expire."""
        self._count: Counter[str] = Counter()

    def issue(self, principal: Principal, path: str | None = None) -> Ticket:
        """Make a ticket that stands for a principal once, for one path if it is named.

        Raises `QuotaExceeded` when a key has too many that nobody used.
        """
        self._forget_expired()
        if self._count[principal.key_id] >= MOST:
            raise QuotaExceeded(f"this key has {MOST} tickets out; use them, or wait {self.life.seconds} seconds")
        ticket = Ticket(self.prefix + secrets.token_urlsafe(32), self._now() + self.life)
        self._issued[digest(ticket.secret)] = _Issued(principal, path, ticket.expires_at)
        self._count[principal.key_id] += 1
        return ticket

    def redeem(self, secret: str, path: str) -> Principal:
        """Whom a ticket stands for; from now on it is worth nothing. Raises `Unauthorized`."""
        self._forget_expired()
        issued = self._take(digest(secret))
        if issued is None:
            raise Unauthorized(self.invalid)
        if issued.path is not None and issued.path != path:
            raise Unauthorized(f"This ticket is for {issued.path} only, and is used up now; ask for another.")
        return issued.principal

    def _take(self, hashed: str) -> _Issued | None:
        issued = self._issued.pop(hashed, None)
        if issued is not None:
            key = issued.principal.key_id
            self._count[key] -= 1
            if not self._count[key]:
                del self._count[key]
        return issued

    def _forget_expired(self) -> None:
        now = self._now()
        while self._issued:
            hashed, oldest = next(iter(self._issued.items()))
            if oldest.expires_at > now:
                return
            self._take(hashed)


class Codes(Tickets):
    """Codes that log a browser in as whoever asked for them, once."""

    prefix = "pdc_"
    life = timedelta(minutes=2)
    invalid = "This code is unknown, used or has expired; ask for another with `paddock console`."
