"""One `subscriptions/listen` for several servers: notifications of all, until the client closes it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from paddock.errors import InvalidInput, PaddockError
from paddock.mcp.gateway.resource_routes import find_resource_owner, split_qualified_uri
from paddock.mcp.gateway.server_lists import ServerLists
from paddock.mcp.protocol import CallContext, JsonRpcMessage, McpEndpoint
from paddock.mcp.protocol.messages import make_notification, make_request
from paddock.mcp.protocol.revisions import LISTEN, META_SUBSCRIPTION

MAX_RESOURCES = 1000
MAX_FAILURES = 8
FIRST_PAUSE = 1.0
MAX_PAUSE = 60.0
_CHANGES = {
    "tools/list": ("toolsListChanged", "notifications/tools/list_changed"),
    "prompts/list": ("promptsListChanged", "notifications/prompts/list_changed"),
    "resources/list": ("resourcesListChanged", "notifications/resources/list_changed"),
    "resources/templates/list": ("resourcesListChanged", "notifications/resources/list_changed"),
}
_UPDATED = "notifications/resources/updated"


class ListenMember(Protocol):
    @property
    def prefix(self) -> str: ...

    @property
    def endpoint(self) -> McpEndpoint: ...

    @property
    def lists(self) -> ServerLists: ...


class _PendingNotifications:
    """Notifications that wait for the client; of several equal ones, one is enough."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str], dict[str, Any]] = {}
        self._has_some = asyncio.Event()

    def add(self, method: str, params: dict[str, Any]) -> None:
        self._waiting[method, str(params.get("uri", ""))] = params
        self._has_some.set()

    async def next(self) -> tuple[str, dict[str, Any]]:
        await self._has_some.wait()
        key = next(iter(self._waiting))
        params = self._waiting.pop(key)
        if not self._waiting:
            self._has_some.clear()
        return key[0], params


async def listen_to_all(
    request: JsonRpcMessage, context: CallContext, members: Sequence[ListenMember]
) -> AsyncGenerator[JsonRpcMessage, None]:
    """Yield the acknowledgement, then the notifications that the filter names. Lists are followed by the gateway."""
    params = request.params_object()
    wanted = params.get("notifications")
    if not isinstance(wanted, dict):
        raise InvalidInput("params.notifications: must be an object")
    uris = wanted.get("resourceSubscriptions") or []
    if not isinstance(uris, list) or len(uris) > MAX_RESOURCES or not all(isinstance(uri, str) for uri in uris):
        raise InvalidInput(f"params.notifications.resourceSubscriptions: must be up to {MAX_RESOURCES} URIs")
    honoured: dict[str, Any] = {field: True for field, _ in _CHANGES.values() if wanted.get(field) is True}
    by_member, known_uris = _resources_by_member(uris, members, context)
    if known_uris:
        honoured["resourceSubscriptions"] = known_uris
    meta = {META_SUBSCRIPTION: request.id}
    pending = _PendingNotifications()
    removers = [member.lists.add_listener(_list_listener(honoured, pending)) for member in members]
    tasks: list[asyncio.Task[None]] = []
    try:
        yield make_notification("notifications/subscriptions/acknowledged", {"_meta": meta, "notifications": honoured})
        for member, shown in by_member:
            inner = {**params, "notifications": {"resourceSubscriptions": list(shown)}}
            following = _follow_resources(member, make_request(request.id or 0, LISTEN, inner), context, shown, pending)
            tasks.append(asyncio.create_task(following, name="MCP resource changes"))
        while True:
            method, told = await pending.next()
            yield make_notification(method, {**told, "_meta": {**told.get("_meta", {}), **meta}})
    finally:
        for remove in removers:
            remove()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _list_listener(honoured: Mapping[str, Any], pending: _PendingNotifications) -> Callable[[str], None]:
    def changed(method: str) -> None:
        field, notification = _CHANGES[method]
        if field in honoured:
            pending.add(notification, {})

    return changed


def _resources_by_member(
    uris: Sequence[str], members: Sequence[ListenMember], context: CallContext
) -> tuple[list[tuple[ListenMember, dict[str, str]]], list[str]]:
    """Return the subscribed URIs of each member, each with the URI that the client knows, and all that were found."""
    by_prefix = {member.prefix: member for member in members}
    found: dict[str, tuple[ListenMember, dict[str, str]]] = {}
    known = []
    for uri in uris:
        qualified = split_qualified_uri(uri)
        if qualified is not None and qualified[0] in by_prefix:
            member: ListenMember | None = by_prefix[qualified[0]]
            own = qualified[1]
        else:
            member, own = find_resource_owner(uri, members, context), uri
        if member is not None:
            known.append(uri)
            found.setdefault(member.prefix, (member, {}))[1][own] = uri
    return list(found.values()), known


async def _follow_resources(
    member: ListenMember,
    request: JsonRpcMessage,
    context: CallContext,
    shown: Mapping[str, str],
    pending: _PendingNotifications,
) -> None:
    """Pass on updates of a member's resources; listen again when its stream breaks."""
    pause, failures = FIRST_PAUSE, 0
    while failures < MAX_FAILURES:
        try:
            async with aclosing(member.endpoint.exchange(request, context)) as messages:
                async for message in messages:
                    if message.error_object():
                        return
                    if message.method == _UPDATED:
                        pause, failures = FIRST_PAUSE, 0
                        params = message.params_object()
                        if params.get("uri") in shown:
                            pending.add(_UPDATED, {**params, "uri": shown[params["uri"]]})
        except PaddockError:
            failures += 1
        await asyncio.sleep(pause)
        pause = min(pause * 2, MAX_PAUSE)
