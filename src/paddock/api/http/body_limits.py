"""Limits on API request bodies: bytes and number of JSON values, per route.

JSON is parsed and validated on the event loop, so its cost is bounded before parsing. Strings cost next to nothing;
every other value costs time in the parser and in the validation, so values are counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fastapi.routing import APIRoute, APIRouter
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope

from paddock.api.http.authorization import header_value, require_principal
from paddock.errors import TooLarge
from paddock.llm.offload.json_value_counter import JsonValueCounter
from paddock.model.keys import Scope as KeyScope

LOGIN_PATH = "/v1/login"
_UNLIMITED = 2**62


@dataclass(frozen=True)
class BodyLimit:
    """Largest size of a body and max_bytes values in it."""

    size: int
    values: int


SMALL_BODY = BodyLimit(4 * 2**10, 100)
DEFAULT_LIMIT = BodyLimit(2**20, 10_000)
LONG_LISTS = BodyLimit(4 * 2**20, 50_000)
MAX_BODY_ONLY = BodyLimit(_UNLIMITED, 50_000)
"""Size limited by `server.max_body` only: messages with files, task files and tool arguments."""
TOOL_ARGUMENTS = BodyLimit(16 * 2**20, 50_000)
STREAMED = BodyLimit(_UNLIMITED, _UNLIMITED)
"""Uploads that are streamed to disk and limited by the route itself."""
_ROUTE_LIMITS: Mapping[tuple[str, str], BodyLimit] = {
    ("POST", LOGIN_PATH): SMALL_BODY,
    ("POST", "/v1/agui"): MAX_BODY_ONLY,
    ("POST", "/v1/runs"): MAX_BODY_ONLY,
    ("POST", "/v1/tasks/validate"): MAX_BODY_ONLY,
    ("POST", "/v1/sessions/{session_id}/messages"): MAX_BODY_ONLY,
    ("POST", "/v1/sessions/{session_id}/resume"): MAX_BODY_ONLY,
    ("POST", "/v1/sandboxes/{sandbox_id}/tools/{name}"): TOOL_ARGUMENTS,
    ("POST", "/v1/sandboxes/{sandbox_id}/mcp"): TOOL_ARGUMENTS,
    ("PUT", "/v1/sandboxes/{sandbox_id}/networkpolicy"): LONG_LISTS,
    ("PATCH", "/v1/sandboxes/{sandbox_id}/networkpolicy"): LONG_LISTS,
    ("DELETE", "/v1/sandboxes/{sandbox_id}/networkpolicy"): LONG_LISTS,
    ("POST", "/v1/inputs"): STREAMED,
    ("POST", "/v1/sessions/import"): STREAMED,
}
"""Routes whose limit is not the default one."""
_WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True)
class _RouteLimit:
    pattern: re.Pattern[str]
    methods: frozenset[str]
    needed: tuple[KeyScope, ...]
    limit: BodyLimit


class BodyLimits:
    """The body limit and required scopes of each route, checked before the body is read."""

    def __init__(self, routers: Iterable[APIRouter], max_body: int) -> None:
        self._max_body = max_body
        self._rules = [
            _route_limit(route)
            for router in routers
            for route in router.routes
            if isinstance(route, APIRoute) and not (route.methods or set()) <= _WITHOUT_BODY
        ]

    def limit_body(self, scope: Scope, receive: Receive) -> Receive:
        """Return a `receive` that stops at the route's body limit.

        Raises `Forbidden` for a key without the route's scope, and `TooLarge` for a `Content-Length` above the limit.
        """
        method, path = scope["method"], scope["path"]
        if method in _WITHOUT_BODY:
            return self._limit_receive(receive, DEFAULT_LIMIT)
        rule = next((each for each in self._rules if method in each.methods and each.pattern.match(path)), None)
        if rule is None:
            return self._limit_receive(receive, DEFAULT_LIMIT)
        for needed in rule.needed:
            require_principal(scope, needed)
        if rule.limit is STREAMED:
            return receive
        size = min(rule.limit.size, self._max_body)
        length = header_value(scope, b"content-length")
        if length.isdigit() and int(length) > size:
            raise TooLarge(self._too_large_message(size))
        return self._limit_receive(receive, rule.limit)

    def _limit_receive(self, receive: Receive, limit: BodyLimit) -> Receive:
        """Count bytes as they arrive: bodies may come without a length."""
        max_bytes = min(limit.size, self._max_body)
        size = 0
        counter = JsonValueCounter()

        async def receive_limited() -> Message:
            nonlocal size
            message = await receive()
            chunk: bytes = message.get("body", b"")
            size += len(chunk)
            # The framework only lets its own exceptions through while it reads a body.
            if size > max_bytes:
                raise HTTPException(413, self._too_large_message(max_bytes))
            if counter.feed(chunk) > limit.values:
                raise HTTPException(413, f"the body has more than {limit.values} values in it")
            return message

        return receive_limited

    def _too_large_message(self, max_bytes: int) -> str:
        if max_bytes == self._max_body:
            return f"the body is larger than server.max_body ({max_bytes} bytes)"
        return f"the body is larger than this route allows ({max_bytes} bytes)"


def _route_limit(route: APIRoute) -> _RouteLimit:
    methods = frozenset(route.methods or ())
    needed = [getattr(each.call, "needed", None) for each in route.dependant.dependencies]
    limit = next(
        (_ROUTE_LIMITS[method, route.path] for method in methods if (method, route.path) in _ROUTE_LIMITS),
        DEFAULT_LIMIT,
    )
    return _RouteLimit(route.path_regex, methods, tuple(each for each in needed if each), limit)
