"""Limits on API request bodies: bytes and number of JSON values per route, and memory per tenant.

JSON is parsed and validated on the event loop, so its cost is bounded before parsing. Strings cost next to nothing;
every other value costs time in the parser and in the validation, so values are counted.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from fastapi.routing import APIRoute, APIRouter
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope

from paddock.api.http.authorization import PRINCIPAL_SCOPE_KEY, read_header, require_principal
from paddock.errors import TooLarge
from paddock.llm.wire.garbage_collection import schedule_garbage_collection
from paddock.llm.wire.memory_budget import MemoryReservation, TenantMemoryBudgets
from paddock.model.json_value_counter import MAX_JSON_DIGITS, JsonValueCounter
from paddock.model.keys import Principal
from paddock.model.keys import Scope as KeyScope

LOGIN_PATH = "/v1/login"
_UNLIMITED = 2**62


@dataclass(frozen=True)
class RouteBodyLimit:
    """Largest size of a body, and the number of values in it."""

    size: int
    values: int
    reported_by_route: bool = False
    """Whether the route answers in a format of its own, so that larger bodies are refused while it reads them."""


SMALL_BODY_LIMIT = RouteBodyLimit(4 * 2**10, 100)
DEFAULT_BODY_LIMIT = RouteBodyLimit(2**20, 10_000)
LONG_LIST_LIMIT = RouteBodyLimit(4 * 2**20, 50_000)
SERVER_MAX_BODY_LIMIT = RouteBodyLimit(_UNLIMITED, 50_000)
"""Size limited by `server.max_body` only: messages with files, task files and tool arguments."""
TOOL_ARGUMENTS_LIMIT = RouteBodyLimit(16 * 2**20, 50_000)
MCP_MESSAGE_LIMIT = RouteBodyLimit(16 * 2**20, 50_000, reported_by_route=True)
STREAMED_BODY_LIMIT = RouteBodyLimit(_UNLIMITED, _UNLIMITED)
"""Uploads that are streamed to disk and limited by the route itself."""
_ROUTE_LIMITS: Mapping[tuple[str, str], RouteBodyLimit] = {
    ("POST", LOGIN_PATH): SMALL_BODY_LIMIT,
    ("POST", "/v1/mcp/oauth/callback"): SMALL_BODY_LIMIT,
    ("POST", "/v1/agui"): SERVER_MAX_BODY_LIMIT,
    ("POST", "/v1/runs"): SERVER_MAX_BODY_LIMIT,
    ("POST", "/v1/tasks/validate"): SERVER_MAX_BODY_LIMIT,
    ("POST", "/v1/sessions/{session_id}/messages"): SERVER_MAX_BODY_LIMIT,
    ("POST", "/v1/sessions/{session_id}/resume"): SERVER_MAX_BODY_LIMIT,
    ("POST", "/v1/sandboxes/{sandbox_id}/tools/{name}"): TOOL_ARGUMENTS_LIMIT,
    ("POST", "/v1/sandboxes/{sandbox_id}/mcp"): MCP_MESSAGE_LIMIT,
    ("PUT", "/v1/sandboxes/{sandbox_id}/networkpolicy"): LONG_LIST_LIMIT,
    ("PATCH", "/v1/sandboxes/{sandbox_id}/networkpolicy"): LONG_LIST_LIMIT,
    ("DELETE", "/v1/sandboxes/{sandbox_id}/networkpolicy"): LONG_LIST_LIMIT,
    ("POST", "/v1/inputs"): STREAMED_BODY_LIMIT,
    ("POST", "/v1/sessions/import"): STREAMED_BODY_LIMIT,
}
"""Routes whose limit is not the default one."""
_ENCODING_BYTES = 4
"""Bytes at the start of a JSON text that tell UTF-8 from other encodings, in which values are not counted."""
_WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True)
class _RouteLimit:
    pattern: re.Pattern[str]
    methods: frozenset[str]
    needed: tuple[KeyScope, ...]
    limit: RouteBodyLimit


class BodyLimiter:
    """The body limit and required scopes of each route, checked before the body is read."""

    def __init__(self, routers: Iterable[APIRouter], max_body: int, memory: TenantMemoryBudgets) -> None:
        self.max_body = max_body
        self._memory = memory
        self._rules = [
            _route_limit(route)
            for router in routers
            for route in router.routes
            if isinstance(route, APIRoute) and not (route.methods or set()) <= _WITHOUT_BODY
        ]

    @contextmanager
    def limit_body(self, scope: Scope, receive: Receive) -> Iterator[Receive]:
        """Return a `receive` that stops at the route's body limit, and at the memory of the tenant.

        Raises `Forbidden` for a key without the route's scope, and `TooLarge` for a `Content-Length` above the limit
        unless the route reports that.
        """
        limit = self._find_limit(scope)
        if limit is STREAMED_BODY_LIMIT:
            yield receive
            return
        length = read_header(scope, b"content-length")
        size = min(limit.size, self.max_body)
        is_declared = scope["method"] not in _WITHOUT_BODY and length.isdigit()
        if is_declared and int(length) > size and not limit.reported_by_route:
            raise TooLarge(self.too_large_message(size))
        principal = scope.get(PRINCIPAL_SCOPE_KEY)
        memory = self._memory.reservation(principal.tenant) if isinstance(principal, Principal) else None
        body = _LimitedBody(self, receive, limit, memory)
        try:
            yield body.receive
        finally:
            if memory is not None:
                memory.release()
            schedule_garbage_collection(body.size)

    def _find_limit(self, scope: Scope) -> RouteBodyLimit:
        method, path = scope["method"], scope["path"]
        if method in _WITHOUT_BODY:
            return DEFAULT_BODY_LIMIT
        rule = next((each for each in self._rules if method in each.methods and each.pattern.match(path)), None)
        if rule is None:
            return DEFAULT_BODY_LIMIT
        for needed in rule.needed:
            require_principal(scope, needed)
        return rule.limit

    def too_large_message(self, max_bytes: int) -> str:
        if max_bytes == self.max_body:
            return f"the body is larger than server.max_body ({max_bytes} bytes)"
        return f"the body is larger than this route allows ({max_bytes} bytes)"


class _LimitedBody:
    """A body that is counted as it arrives: it may come without a length."""

    def __init__(
        self, limits: BodyLimiter, receive: Receive, limit: RouteBodyLimit, memory: MemoryReservation | None
    ) -> None:
        self.size = 0
        self._limits = limits
        self._receive = receive
        self._limit = limit
        self._memory = memory
        self._max_bytes = min(limit.size, limits.max_body)
        self._counter = JsonValueCounter()
        self._start = b""

    async def receive(self) -> Message:
        message = await self._receive()
        chunk: bytes = message.get("body", b"")
        self.size += len(chunk)
        # The framework only lets its own exceptions through while it reads a body.
        if self.size > self._max_bytes:
            raise HTTPException(413, self._limits.too_large_message(self._max_bytes))
        if self._memory is not None and not self._memory.grow(len(chunk)):
            raise HTTPException(503, "too many large requests are under way; try again later", {"Retry-After": "5"})
        if len(self._start) < _ENCODING_BYTES:
            self._start = (self._start + chunk)[:_ENCODING_BYTES]
            if b"\0" in self._start or self._start.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
                raise HTTPException(400, "the body is not UTF-8; send JSON as UTF-8, without a byte order mark")
        if self._counter.feed(chunk) > self._limit.values:
            raise HTTPException(413, f"the body has more than {self._limit.values} values in it")
        if self._counter.digits > MAX_JSON_DIGITS:
            raise HTTPException(413, f"the numbers in the body have more than {MAX_JSON_DIGITS} digits")
        return message


def _route_limit(route: APIRoute) -> _RouteLimit:
    methods = frozenset(route.methods or ())
    needed = [getattr(each.call, "needed", None) for each in route.dependant.dependencies]
    limit = next(
        (_ROUTE_LIMITS[method, route.path] for method in methods if (method, route.path) in _ROUTE_LIMITS),
        DEFAULT_BODY_LIMIT,
    )
    return _RouteLimit(route.path_regex, methods, tuple(each for each in needed if each), limit)
