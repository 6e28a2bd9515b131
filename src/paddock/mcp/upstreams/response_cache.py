"""Responses that servers allow to keep: lists and `server/discover`, by `ttlMs` and `cacheScope`."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, UnsetType

from paddock.errors import InvalidInput
from paddock.mcp.protocol import CallContext, JsonRpcMessage
from paddock.mcp.protocol.revisions import DISCOVER, INPUT_REQUIRED, META_CLIENT_CAPABILITIES
from paddock.mcp.upstreams.request_fields import raw_object

CACHED_METHODS = frozenset((DISCOVER, "tools/list", "prompts/list", "resources/list", "resources/templates/list"))
LIST_CHANGES = {
    "notifications/tools/list_changed": ("tools/list",),
    "notifications/prompts/list_changed": ("prompts/list",),
    "notifications/resources/list_changed": ("resources/list", "resources/templates/list"),
}
"""Methods whose responses are stale after a notification."""
MAX_ENTRIES = 512
MAX_TOTAL_SIZE = 32 * 2**20
MAX_TTL = 3600.0

_CacheKey: TypeAlias = tuple[str, bytes, bytes]


class _CacheHints(msgspec.Struct):
    ttl: float = msgspec.field(default=0, name="ttlMs")
    scope: str = msgspec.field(default="private", name="cacheScope")
    result_type: str | UnsetType = msgspec.field(default=UNSET, name="resultType")


_HINTS = msgspec.json.Decoder(_CacheHints)


@dataclass(frozen=True, slots=True)
class CacheSlot:
    """Where the response to one request is kept, and the state of its list when it was asked for."""

    method: str
    params: bytes
    authorization: bytes
    generation: int


@dataclass(frozen=True, slots=True)
class _CacheEntry:
    result: Raw
    fresh_until: float


class ResponseCache:
    """Fresh responses of one server. Private ones are kept for one caller each."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._entries: OrderedDict[_CacheKey, _CacheEntry] = OrderedDict()
        self._size = 0
        self._generations: dict[str, int] = {}

    def slot(self, request: JsonRpcMessage, context: CallContext) -> CacheSlot | None:
        """Return where the response to a request is kept; None if it must not be."""
        method = request.method
        if not isinstance(method, str) or method not in CACHED_METHODS:
            return None
        try:
            params = raw_object(request.params)
            meta = raw_object(params.pop("_meta", UNSET))
        except InvalidInput:
            return None
        if "requestState" in params or "inputResponses" in params:
            return None
        # Servers may list other tools for clients with other capabilities.
        params[META_CLIENT_CAPABILITIES] = meta.get(META_CLIENT_CAPABILITIES, Raw(b"{}"))
        who = (context.tenant, context.caller, context.sandbox, context.session, context.client_session)
        authorization = msgspec.json.encode(who)
        key = msgspec.json.encode(sorted((name, bytes(value).decode()) for name, value in params.items()))
        return CacheSlot(method, key, authorization, self._generations.get(method, 0))

    def find(self, slot: CacheSlot) -> Raw | None:
        """Return a fresh result."""
        for authorization in (b"", slot.authorization):
            key = (slot.method, slot.params, authorization)
            entry = self._entries.get(key)
            if entry is None:
                continue
            if entry.fresh_until > self._clock():
                self._entries.move_to_end(key)
                return entry.result
            self._remove(key)
        return None

    def keep(self, slot: CacheSlot, response: JsonRpcMessage) -> None:
        """Keep a response as long as the server allows. A list that changed meanwhile is not kept."""
        if not isinstance(response.result, Raw) or slot.generation != self._generations.get(slot.method, 0):
            return
        try:
            hints = _HINTS.decode(response.result)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return
        if not hints.ttl > 0 or hints.result_type == INPUT_REQUIRED:
            return
        scope: Literal["public", "private"] = "public" if hints.scope == "public" else "private"
        key = (slot.method, slot.params, b"" if scope == "public" else slot.authorization)
        self._remove(key)
        result = Raw(bytes(response.result))
        self._entries[key] = _CacheEntry(result, self._clock() + min(hints.ttl / 1000, MAX_TTL))
        self._size += len(bytes(result))
        while self._entries and (len(self._entries) > MAX_ENTRIES or self._size > MAX_TOTAL_SIZE):
            self._remove(next(iter(self._entries)))

    def on_notification(self, message: JsonRpcMessage) -> None:
        """Forget lists that a notification calls changed."""
        for method in LIST_CHANGES.get(message.method, ()) if isinstance(message.method, str) else ():
            self._generations[method] = self._generations.get(method, 0) + 1
            for key in [each for each in self._entries if each[0] == method]:
                self._remove(key)

    def clear(self) -> None:
        for method in CACHED_METHODS:
            self._generations[method] = self._generations.get(method, 0) + 1
        self._entries.clear()
        self._size = 0

    def _remove(self, key: _CacheKey) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._size -= len(bytes(entry.result))
