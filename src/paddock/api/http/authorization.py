"""Read API keys from requests, and demand scopes of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated
from urllib.parse import parse_qsl

from fastapi import Depends, Request
from starlette.types import Scope as AsgiScope

from paddock.errors import Unauthorized
from paddock.model.keys import Principal, Scope

API_KEY_HEADER = b"open-sandbox-api-key"
PRINCIPAL_SCOPE_KEY = "paddock.principal"
NO_KEY_MESSAGE = "Send an API key as `Authorization: Bearer KEY` or `OPEN-SANDBOX-API-KEY: KEY`."

MODEL_KEY_HEADERS = frozenset({b"x-api-key", b"x-goog-api-key"})
"""Headers in which clients of model APIs send their key; no other route reads them."""
MODEL_KEY_MESSAGE = (
    "The headers x-api-key and x-goog-api-key are for the model APIs only. "
    "Send the key as `Authorization: Bearer KEY` or `OPEN-SANDBOX-API-KEY: KEY`."
)


def read_header(scope: AsgiScope, name: bytes) -> str:
    """Return the first value of a header, or an empty string."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


def read_bearer_token(scope: AsgiScope) -> str:
    """Return the secret of `Authorization: Bearer`, or an empty string."""
    scheme, _, secret = read_header(scope, b"authorization").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else ""


def read_request_api_key(scope: AsgiScope) -> str:
    """Return the API key of a request.

    Browsers cannot set headers on a WebSocket, so there the key may be in the address.
    """
    secret = read_header(scope, API_KEY_HEADER).strip() or read_bearer_token(scope)
    return secret or (read_query_token(scope) if scope["type"] == "websocket" else "")


def has_model_key(scope: AsgiScope) -> bool:
    """Return whether a request has a key in a header of the model APIs."""
    return any(name in MODEL_KEY_HEADERS and value for name, value in scope["headers"])


def read_query_token(scope: AsgiScope) -> str:
    return parse_query_parameters(scope).get("token", "")


def read_query_ticket(scope: AsgiScope) -> str:
    """Return the one-time ticket in the address."""
    return parse_query_parameters(scope).get("ticket", "")


def parse_query_parameters(scope: AsgiScope) -> dict[str, str]:
    query: bytes = scope["query_string"]
    return dict(parse_qsl(query.decode("latin-1")))


def require_principal(scope: AsgiScope, needed: Scope | None = None) -> Principal:
    """Return the authenticated principal; raise `Forbidden` if it lacks the scope `needed`."""
    principal = scope.get(PRINCIPAL_SCOPE_KEY)
    if not isinstance(principal, Principal):
        raise Unauthorized(NO_KEY_MESSAGE)
    if needed is not None:
        principal.require(needed)
    return principal


# Async although nothing is awaited: FastAPI would run plain functions in a thread on each request.
async def _require_any_key(request: Request) -> Principal:
    return require_principal(request.scope)


def _require_scope(needed: Scope) -> Callable[[Request], Awaitable[Principal]]:
    async def check(request: Request) -> Principal:
        return require_principal(request.scope, needed)

    check.needed = needed  # type: ignore[attr-defined]  # `BodyLimiter` reads it before the body.
    return check


AnyKey = Annotated[Principal, Depends(_require_any_key)]
"""Any valid key, regardless of its scopes."""
SandboxReader = Annotated[Principal, Depends(_require_scope(Scope.SANDBOXES_READ))]
SandboxWriter = Annotated[Principal, Depends(_require_scope(Scope.SANDBOXES_WRITE))]
RunReader = Annotated[Principal, Depends(_require_scope(Scope.RUNS_READ))]
RunWriter = Annotated[Principal, Depends(_require_scope(Scope.RUNS_WRITE))]
SessionReader = Annotated[Principal, Depends(_require_scope(Scope.SESSIONS_READ))]
SessionWriter = Annotated[Principal, Depends(_require_scope(Scope.SESSIONS_WRITE))]
KeyAdmin = Annotated[Principal, Depends(_require_scope(Scope.KEYS_ADMIN))]
LlmReader = Annotated[Principal, Depends(_require_scope(Scope.LLM_READ))]
McpUser = Annotated[Principal, Depends(_require_scope(Scope.MCP_USE))]
McpWriter = Annotated[Principal, Depends(_require_scope(Scope.MCP_WRITE))]
MetricsReader = Annotated[Principal, Depends(_require_scope(Scope.METRICS_READ))]
Admin = Annotated[Principal, Depends(_require_scope(Scope.ADMIN))]
