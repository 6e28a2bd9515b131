"""Who a request comes from: keys in headers, and what routes demand of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated
from urllib.parse import parse_qsl

from fastapi import Depends, Request
from starlette.types import Scope as AsgiScope

from paddock.errors import Unauthorized
from paddock.model.keys import Principal, Scope

API_KEY = b"open-sandbox-api-key"
PRINCIPAL = "paddock.principal"
NO_KEY = "Send an API key as `Authorization: Bearer KEY` or `OPEN-SANDBOX-API-KEY: KEY`."


def header(scope: AsgiScope, name: bytes) -> str:
    """A header's first value, or nothing."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


def bearer(scope: AsgiScope) -> str:
    """What stands in `Authorization: Bearer`."""
    scheme, _, secret = header(scope, b"authorization").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else ""


def secret_of(scope: AsgiScope) -> str:
    """The key a request shows. A browser cannot set headers on a WebSocket, so there it may be in the address."""
    secret = header(scope, API_KEY).strip() or bearer(scope)
    return secret or (token_of(scope) if scope["type"] == "websocket" else "")


def token_of(scope: AsgiScope) -> str:
    return query_of(scope).get("token", "")


def ticket_of(scope: AsgiScope) -> str:
    """A ticket in the address, which is worth nothing once it has been used."""
    return query_of(scope).get("ticket", "")


def query_of(scope: AsgiScope) -> dict[str, str]:
    query: bytes = scope["query_string"]
    return dict(parse_qsl(query.decode("latin-1")))


def principal_of(scope: AsgiScope, needed: Scope | None = None) -> Principal:
    """Who was let in. Raises `Forbidden` if they may not do what they ask for."""
    principal = scope.get(PRINCIPAL)
    if not isinstance(principal, Principal):
        raise Unauthorized(NO_KEY)
    if needed is not None:
        principal.require(needed)
    return principal


# They wait for nothing, but what is not async is sent to a thread, on each request.
async def _known(request: Request) -> Principal:
    return principal_of(request.scope)


def _allowed(needed: Scope) -> Callable[[Request], Awaitable[Principal]]:
    async def check(request: Request) -> Principal:
        return principal_of(request.scope, needed)

    check.needed = needed  # type: ignore[attr-defined]  # Read before a body is.
    return check


Anyone = Annotated[Principal, Depends(_known)]
"""Whoever has a key, whatever it may do."""
Reader = Annotated[Principal, Depends(_allowed(Scope.SANDBOXES_READ))]
Writer = Annotated[Principal, Depends(_allowed(Scope.SANDBOXES_WRITE))]
RunReader = Annotated[Principal, Depends(_allowed(Scope.RUNS_READ))]
RunWriter = Annotated[Principal, Depends(_allowed(Scope.RUNS_WRITE))]
SessionReader = Annotated[Principal, Depends(_allowed(Scope.SESSIONS_READ))]
SessionWriter = Annotated[Principal, Depends(_allowed(Scope.SESSIONS_WRITE))]
KeyAdmin = Annotated[Principal, Depends(_allowed(Scope.KEYS_ADMIN))]
LlmReader = Annotated[Principal, Depends(_allowed(Scope.LLM_READ))]
Admin = Annotated[Principal, Depends(_allowed(Scope.ADMIN))]
