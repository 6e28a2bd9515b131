"""Bounds on the bodies of API requests: how long, and how many values of JSON, per route.

JSON is parsed and checked on the event loop, so its cost is bounded before it is parsed. Strings cost next to nothing;
every other value costs time in the parser and in the validation, so values are counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fastapi.routing import APIRoute, APIRouter
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope

from paddock.api.access import header, principal_of
from paddock.errors import TooLarge
from paddock.llm.json_values import ValueCounter
from paddock.model.keys import Scope as KeyScope

LOGIN = "/v1/login"
_ANY = 2**62


@dataclass(frozen=True)
class Bounds:
    """What a body may be at most."""

    size: int
    values: int


SMALL = Bounds(4 * 2**10, 100)
USUAL = Bounds(2**20, 10_000)
LISTS = Bounds(4 * 2**20, 50_000)
WHOLE = Bounds(_ANY, 50_000)
"""Bounded in size by `server.max_body` alone: for messages with files, task files and arguments of tools."""
UNREAD = Bounds(_ANY, _ANY)
"""For uploads that are never held whole and bounded by the route itself."""
_BOUNDS: Mapping[tuple[str, str], Bounds] = {
    ("POST", LOGIN): SMALL,
    ("POST", "/v1/agui"): WHOLE,
    ("POST", "/v1/runs"): WHOLE,
    ("POST", "/v1/tasks/validate"): WHOLE,
    ("POST", "/v1/sessions/{session_id}/messages"): WHOLE,
    ("POST", "/v1/sessions/{session_id}/resume"): WHOLE,
    ("POST", "/v1/sandboxes/{sandbox_id}/tools/{name}"): WHOLE,
    ("POST", "/v1/sandboxes/{sandbox_id}/mcp"): WHOLE,
    ("PUT", "/v1/sandboxes/{sandbox_id}/networkpolicy"): LISTS,
    ("PATCH", "/v1/sandboxes/{sandbox_id}/networkpolicy"): LISTS,
    ("DELETE", "/v1/sandboxes/{sandbox_id}/networkpolicy"): LISTS,
    ("POST", "/v1/inputs"): UNREAD,
    ("POST", "/v1/sessions/import"): UNREAD,
}
"""Routes whose bounds are not `USUAL`."""
_WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True)
class _Rule:
    pattern: re.Pattern[str]
    methods: frozenset[str]
    needed: tuple[KeyScope, ...]
    bounds: Bounds


class BodyRules:
    """The bounds and the scopes of all routes, known before a body is read."""

    def __init__(self, routers: Iterable[APIRouter], max_body: int) -> None:
        self._max_body = max_body
        self._rules = [
            _rule(route)
            for router in routers
            for route in router.routes
            if isinstance(route, APIRoute) and not (route.methods or set()) <= _WITHOUT_BODY
        ]

    def check(self, scope: Scope, receive: Receive) -> Receive:
        """Return a `receive` that stops at the bounds of the route.

        Raises `Forbidden` for a key that lacks the scope of the route, and `TooLarge` for a body that announces it.
        """
        method, path = scope["method"], scope["path"]
        if method in _WITHOUT_BODY:
            return self._bounded(receive, USUAL)
        rule = next((each for each in self._rules if method in each.methods and each.pattern.match(path)), None)
        if rule is None:
            return self._bounded(receive, USUAL)
        for needed in rule.needed:
            principal_of(scope, needed)
        if rule.bounds is UNREAD:
            return receive
        size = min(rule.bounds.size, self._max_body)
        length = header(scope, b"content-length")
        if length.isdigit() and int(length) > size:
            raise TooLarge(self._too_large(size))
        return self._bounded(receive, rule.bounds)

    def _bounded(self, receive: Receive, bounds: Bounds) -> Receive:
        """Bodies may come without their length."""
        most = min(bounds.size, self._max_body)
        size = 0
        counter = ValueCounter()

        async def measured() -> Message:
            nonlocal size
            message = await receive()
            piece: bytes = message.get("body", b"")
            size += len(piece)
            # Only an error of the framework's own passes through the framework's reading of bodies.
            if size > most:
                raise HTTPException(413, self._too_large(most))
            if counter.feed(piece) > bounds.values:
                raise HTTPException(413, f"the body has more than {bounds.values} values in it")
            return message

        return measured

    def _too_large(self, most: int) -> str:
        if most == self._max_body:
            return f"the body is larger than server.max_body ({most} bytes)"
        return f"the body is larger than this route takes ({most} bytes)"


def _rule(route: APIRoute) -> _Rule:
    methods = frozenset(route.methods or ())
    needed = [getattr(each.call, "needed", None) for each in route.dependant.dependencies]
    bounds = next((_BOUNDS[method, route.path] for method in methods if (method, route.path) in _BOUNDS), USUAL)
    return _Rule(route.path_regex, methods, tuple(each for each in needed if each), bounds)
