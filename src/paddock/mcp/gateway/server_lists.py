"""Complete lists of a server's tools, prompts and resources, kept as long as the server allows.

A list that the server marks as private is kept for the caller that fetched it. Several callers that need the same list
wait for one fetch. The last list is kept when the server fails, so that its tools do not disappear for a moment.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from msgspec import Raw

from paddock.errors import InvalidInput, PaddockError, Unavailable
from paddock.mcp.gateway.envelopes import (
    item_name,
    item_uri,
    raw_object,
    raw_text,
    replace_field,
    result_fields,
    result_items,
)
from paddock.mcp.gateway.paced_work import paced
from paddock.mcp.protocol import CallContext, JsonRpcMessage, McpEndpoint
from paddock.mcp.protocol.messages import METHOD_NOT_FOUND, make_request
from paddock.mcp.protocol.revisions import META_CLIENT_CAPABILITIES, META_REVISION, STATELESS_REVISION

LIST_FIELDS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
DEFAULT_AGE = 30.0
"""Seconds for which a list without `ttlMs` is kept."""
MIN_AGE = 1.0
MAX_AGE = 3600.0
MAX_PAGES = 200
MAX_NAMINGS = 50
MAX_ITEMS = 10_000
MAX_LIST_BYTES = 32 * 2**20
MAX_PRIVATE_LISTS = 1000
FETCH_SECONDS = 60.0
RETRY_SECONDS = 2.0
"""Seconds after a failed fetch for which the failure is the answer."""


@dataclass(frozen=True, slots=True)
class ListItem:
    """A tool, prompt, resource or template."""

    name: str
    """Its name, or its URI."""
    raw: Raw


class RenamedItems(NamedTuple):
    """Items under other names, and the former name by each."""

    items: Sequence[ListItem]
    former_names: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerList:
    """A complete list of one kind."""

    items: Sequence[ListItem] = ()
    expires_at: float = 0.0
    is_private: bool = False
    failure: PaddockError | None = None
    """Why the list could not be fetched; its items are from an earlier fetch."""
    renamed: dict[object, RenamedItems] = field(default_factory=dict)
    """The items under other names, by what names them; shared by copies of the list."""

    def renamed_items(self, key: object, rename: Callable[[str], str | None]) -> RenamedItems:
        """Return the items under the names of `rename`, sorted by them; None leaves an item out."""
        found = self.renamed.get(key)
        if found is None:
            pairs = sorted(
                ((name, item) for item in self.items if (name := rename(item.name)) is not None),
                key=lambda pair: pair[0],
            )
            found = RenamedItems(
                tuple(
                    ListItem(name, item.raw if name == item.name else replace_field(item.raw, "name", name))
                    for name, item in pairs
                ),
                {name: item.name for name, item in pairs},
            )
            if len(self.renamed) >= MAX_NAMINGS:
                self.renamed.clear()
            self.renamed[key] = found
        return found


class ServerLists:
    """The lists of one connection. `default_private` holds for lists that do not say whether they are private."""

    def __init__(self, endpoint: McpEndpoint, *, default_private: bool = False) -> None:
        self._endpoint = endpoint
        self._default_private = default_private
        self._shared: dict[str, ServerList] = {}
        self._private: OrderedDict[tuple[str, str], ServerList] = OrderedDict()
        self._is_private: dict[str, bool] = {}
        self._fetches: dict[tuple[str, str], tuple[asyncio.Task[ServerList], float]] = {}
        self._epoch = 0
        self._listeners: set[Callable[[str], None]] = set()
        self.on_first_fetch: Callable[[CallContext], None] | None = None

    def known(self, method: str, context: CallContext) -> ServerList | None:
        """Return the last list for a caller, even if it has expired."""
        return self._private.get((method, _owner(context))) or self._shared.get(method)

    def fresh(self, method: str, context: CallContext) -> ServerList | None:
        """Return the list for a caller if it has not expired."""
        found = self.known(method, context)
        return found if found is not None and asyncio.get_running_loop().time() < found.expires_at else None

    def invalidate(self, method: str | None = None) -> None:
        """Fetch the lists of a method, or all, again on their next use."""
        self._epoch += 1
        for key, found in list(self._shared.items()):
            if method in (None, key):
                self._shared[key] = replace(found, expires_at=0.0)
        for private_key, found in list(self._private.items()):
            if method in (None, private_key[0]):
                self._private[private_key] = replace(found, expires_at=0.0)
        for fetch_key in list(self._fetches):
            if method in (None, fetch_key[0]):
                self._fetches.pop(fetch_key)  # What it brings may be older than the change.
        for listener in list(self._listeners):
            for changed in LIST_FIELDS if method is None else (method,):
                listener(changed)

    async def get(self, method: str, context: CallContext, wait: float) -> ServerList:
        """Return a list, fetched if needed within `wait` seconds; never raises.

        If the server fails or is slow, the list has the last known items and the failure.
        """
        if (fresh := self.fresh(method, context)) is not None:
            return fresh
        fetch, started = self._start_fetch(method, context)
        # Clients that list often must not wait each time for a server that hangs.
        left = max(0.0, wait - (asyncio.get_running_loop().time() - started))
        done, _ = await asyncio.wait([fetch], timeout=left)
        if done:
            return fetch.result()
        last = self.known(method, context)
        failure = Unavailable("the server has not answered yet; it may be starting")
        return replace(last, failure=failure) if last is not None else ServerList(failure=failure)

    def add_listener(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Call `listener` with the method of each list that changes or expires early; return what removes it."""
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    async def close(self) -> None:
        """Cancel fetches under way."""
        fetches = [task for task, _ in self._fetches.values()]
        self._fetches.clear()
        for fetch in fetches:
            fetch.cancel()
        await asyncio.gather(*fetches, return_exceptions=True)

    def _start_fetch(self, method: str, context: CallContext) -> tuple[asyncio.Task[ServerList], float]:
        """Return the fetch under way for a list, and when it began."""
        if self.on_first_fetch is not None:
            started, self.on_first_fetch = self.on_first_fetch, None
            started(context)
        # Until the first answer it is unknown whether the list may be shared.
        shared = self._is_private.get(method) is False
        key = (method, "" if shared else _owner(context))
        if (found := self._fetches.get(key)) is None:
            task = asyncio.create_task(self._fetch(method, context, self._epoch), name=f"MCP {method}")
            found = self._fetches[key] = task, asyncio.get_running_loop().time()
            task.add_done_callback(lambda done: self._forget_fetch(key, done))
        return found

    def _forget_fetch(self, key: tuple[str, str], done: asyncio.Task[ServerList]) -> None:
        if key in self._fetches and self._fetches[key][0] is done:
            del self._fetches[key]

    async def _fetch(self, method: str, context: CallContext, epoch: int) -> ServerList:
        plain = replace(context, client_session=None, deadline=None)
        now = asyncio.get_running_loop().time
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                found = await self._fetch_pages(method, plain)
        except TimeoutError:
            found = ServerList(failure=Unavailable("the server does not answer"), expires_at=now() + RETRY_SECONDS)
        except PaddockError as error:
            found = ServerList(failure=error, expires_at=now() + RETRY_SECONDS)
        except Exception as error:
            failure = Unavailable(f"the list could not be read ({type(error).__name__})")
            found = ServerList(failure=failure, expires_at=now() + RETRY_SECONDS)
        if found.failure is not None:
            last = self.known(method, context)
            if last is not None:
                found = replace(last, failure=found.failure, expires_at=found.expires_at, is_private=last.is_private)
            else:
                found = replace(found, is_private=True)
        else:
            self._is_private[method] = found.is_private
        if epoch != self._epoch:
            found = replace(found, expires_at=0.0)
        before = self.known(method, context)
        self._keep(method, context, found)
        if before is None or before.items != found.items or bool(before.failure) != bool(found.failure):
            for listener in list(self._listeners):
                listener(method)
        return found

    def _keep(self, method: str, context: CallContext, found: ServerList) -> None:
        key = (method, _owner(context))
        if found.is_private:
            self._private[key] = found
            self._private.move_to_end(key)
            while len(self._private) > MAX_PRIVATE_LISTS:
                self._private.popitem(last=False)
        else:
            self._private.pop(key, None)
            self._shared[method] = found

    async def _fetch_pages(self, method: str, context: CallContext) -> ServerList:
        kind = LIST_FIELDS[method]
        read_name = {"resources": item_uri, "resourceTemplates": _template}.get(kind, item_name)
        items: dict[str, ListItem] = {}
        size, cursor, seen = 0, None, set[bytes]()
        age: float | None = None
        is_private = self._default_private
        for _ in range(MAX_PAGES):
            response = await ask_once(self._endpoint, list_request(method, cursor), context)
            result = _result_of(response, method)
            if result is None:
                break
            async for raw in paced(result_items(result, kind) if kind in result else ()):
                name = read_name(raw)
                size += len(memoryview(raw))
                if name is not None and name not in items and len(items) < MAX_ITEMS and size <= MAX_LIST_BYTES:
                    items[name] = ListItem(name, raw)
            age = min((each for each in (age, _age(result)) if each is not None), default=None)
            if "cacheScope" in result:
                is_private = raw_text(result["cacheScope"]) != "public"
            cursor = result.get("nextCursor")
            if cursor is None or bytes(cursor) == b"null" or bytes(cursor) in seen:
                break
            seen.add(bytes(cursor))
        lifetime = DEFAULT_AGE if age is None else min(max(age, MIN_AGE), MAX_AGE)
        return ServerList(
            items=tuple(items.values()),
            expires_at=asyncio.get_running_loop().time() + lifetime,
            is_private=is_private,
        )


def list_request(method: str, cursor: Raw | None = None) -> JsonRpcMessage:
    """Return a request of the gateway itself."""
    params: dict[str, object] = {"_meta": {META_REVISION: STATELESS_REVISION, META_CLIENT_CAPABILITIES: {}}}
    if cursor is not None:
        params["cursor"] = cursor
    return make_request("paddock", method, params)


async def ask_once(endpoint: McpEndpoint, request: JsonRpcMessage, context: CallContext) -> JsonRpcMessage:
    """Return the response of a request. Raises `PaddockError`."""
    async with aclosing(endpoint.exchange(request, context)) as messages:
        async for message in messages:
            if message.is_response:
                return message
    raise Unavailable("the server ended without a response")


def _result_of(response: JsonRpcMessage, method: str) -> dict[str, Raw] | None:
    """Return the result; None if the server does not have the method. Raises `PaddockError`."""
    error = response.error_object()
    if not error:
        return result_fields(response)
    if error.get("code") == METHOD_NOT_FOUND:
        return None
    raise Unavailable(f"the server answers {method} with the error {json.dumps(error.get('message'))[:300]}")


def _age(result: dict[str, Raw]) -> float | None:
    if "ttlMs" not in result:
        return None
    try:
        return max(0.0, float(bytes(result["ttlMs"])) / 1000)
    except ValueError:
        return None


def _template(raw: Raw) -> str | None:
    try:
        found = raw_object(raw, "template").get("uriTemplate")
    except InvalidInput:
        return None
    return None if found is None else raw_text(found)


def _owner(context: CallContext) -> str:
    return f"{context.tenant}\n{context.caller}"
