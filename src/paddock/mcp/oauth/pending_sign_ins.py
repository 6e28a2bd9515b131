"""Sign-ins that users have begun: kept in memory for ten minutes, each usable once."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from paddock.errors import McpSignInFailed, QuotaExceeded
from paddock.mcp.oauth.token_vault import TokenKey
from paddock.model.mcp import McpServer
from paddock.model.mcp_oauth import OAuthClient, OAuthEndpoints

LIFETIME = 600.0
MAX_PENDING = 10_000
MAX_PENDING_OF_USER = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingSignIn:
    """A sign-in between the authorization request and the redemption of its code."""

    id: str
    """Identifies it to its user; worthless to others."""
    key: TokenKey
    user: str
    """Name of the user, for the page that asks for confirmation."""
    server: McpServer
    endpoints: OAuthEndpoints
    requires_issuer: bool
    """Whether the authorization server promises to name itself in its answer (RFC 9207)."""
    client: OAuthClient
    resource: str
    scopes: tuple[str, ...]
    redirect_uri: str
    verifier: str = field(repr=False)
    started_at: float
    code: str | None = field(default=None, repr=False)
    """The code, once the authorization server has answered."""

    @property
    def expires_at(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self.started_at + LIFETIME - time.monotonic())


class PendingSignIns:
    """Sign-ins by a random secret: their `state` first, then the secret of the confirmation."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pending: OrderedDict[str, PendingSignIn] = OrderedDict()
        """In the order in which they were begun or answered, which is nearly that of their expiry."""

    def add(self, pending: PendingSignIn) -> str:
        """Keep a sign-in; return its new secret. Raises `QuotaExceeded`."""
        self._remove_expired()
        same = sum(1 for each in self._pending.values() if (each.key.tenant, each.user) == _owner(pending))
        if same >= MAX_PENDING_OF_USER or len(self._pending) >= MAX_PENDING:
            raise QuotaExceeded("too many sign-ins at MCP servers have begun; finish one, or wait ten minutes")
        secret = secrets.token_urlsafe(32)
        self._pending[secret] = pending
        return secret

    def take(self, secret: str) -> PendingSignIn:
        """Remove and return a sign-in. Raises `McpSignInFailed` if it is unknown, used or expired."""
        found = self._pending.pop(secret, None)
        if found is None or found.started_at + LIFETIME <= self._clock():
            raise McpSignInFailed("this sign-in is unknown, was used already or has expired; begin it again")
        return found

    def drop(self, key: TokenKey) -> None:
        """Forget the sign-ins of a user at a server."""
        for secret in [secret for secret, each in self._pending.items() if each.key == key]:
            del self._pending[secret]

    def _remove_expired(self) -> None:
        now = self._clock()
        for secret in [secret for secret, each in self._pending.items() if each.started_at + LIFETIME <= now]:
            del self._pending[secret]


def _owner(pending: PendingSignIn) -> tuple[str, str]:
    return pending.key.tenant, pending.user
