"""`subscriptions/listen` for servers with sessions: subscribed resources and changes of lists."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from typing import Any

import structlog
from msgspec import Raw

from paddock.errors import InvalidInput, PaddockError, QuotaExceeded
from paddock.mcp.protocol import CallContext, JsonRpcMessage
from paddock.mcp.protocol.messages import make_notification
from paddock.mcp.upstreams.call_clock import CallClock
from paddock.mcp.upstreams.request_fields import with_subscription_id
from paddock.mcp.upstreams.sessions.notification_fields import NotificationFields
from paddock.mcp.upstreams.sessions.upstream_session import SHORT_REQUEST_TIME, UpstreamSession

MAX_RESOURCES = 1_000
MAX_LISTENERS = 64
_UPDATED = "notifications/resources/updated"
_LISTS = {"toolsListChanged": "tools", "promptsListChanged": "prompts", "resourcesListChanged": "resources"}
log = structlog.get_logger()


class Listener:
    """One subscription: its filter and its queue of notifications."""

    def __init__(self, methods: set[str], resources: set[str]) -> None:
        self.methods = methods
        self.resources = resources
        self.error: PaddockError | None = None
        self._queue: dict[tuple[str, str | None], JsonRpcMessage] = {}
        self._arrived = asyncio.Event()

    def add(self, message: JsonRpcMessage, uri: str | None) -> None:
        """Queue a notification; several about the same list or resource become one."""
        self._queue[(str(message.method), uri)] = message
        self._arrived.set()

    def close(self, error: PaddockError) -> None:
        self.error = error
        self._arrived.set()

    async def take(self) -> JsonRpcMessage:
        """Return the next notification. Raises the error with which the session ended."""
        while not self._queue:
            if self.error is not None:
                raise type(self.error)(self.error.message)
            self._arrived.clear()
            await self._arrived.wait()
        return self._queue.pop(next(iter(self._queue)))


class Subscriptions:
    """Subscriptions of the clients of one session."""

    def __init__(self, session: UpstreamSession) -> None:
        self._session = session
        self._listeners: list[Listener] = []
        self._resources: Counter[str] = Counter()

    def publish(self, message: JsonRpcMessage, fields: NotificationFields) -> None:
        for listener in self._listeners:
            if message.method in listener.methods or (message.method == _UPDATED and fields.uri in listener.resources):
                listener.add(message, fields.uri if message.method == _UPDATED else None)

    def close(self, error: PaddockError) -> None:
        for listener in self._listeners:
            listener.close(error)

    async def listen(self, request: JsonRpcMessage, context: CallContext) -> AsyncGenerator[JsonRpcMessage, None]:
        """Yield the acknowledgement, then notifications without end. Raises `PaddockError`."""
        wanted = request.params_object().get("notifications")
        if not isinstance(wanted, dict):
            raise InvalidInput("params.notifications: must be an object")
        if len(self._listeners) >= MAX_LISTENERS:
            raise QuotaExceeded(f"a session has at most {MAX_LISTENERS} subscriptions; end another first")
        subscription = request.id if isinstance(request.id, (int, str)) else 0
        accepted = self._accepted_lists(wanted)
        methods = {f"notifications/{_LISTS[each]}/list_changed" for each in accepted}
        listener = Listener(methods, set())
        self._listeners.append(listener)
        try:
            self._session.listen(context)
            await self._subscribe(listener, wanted.get("resourceSubscriptions"), context)
            if listener.resources:
                accepted["resourceSubscriptions"] = sorted(listener.resources)
            acknowledged = make_notification("notifications/subscriptions/acknowledged", {"notifications": accepted})
            yield with_subscription_id(acknowledged, subscription)
            while True:
                yield with_subscription_id(await listener.take(), subscription)
        finally:
            self._listeners.remove(listener)
            self._session.tasks.spawn(self._unsubscribe(listener, context))

    def _accepted_lists(self, wanted: dict[str, Any]) -> dict[str, Any]:
        accepted: dict[str, Any] = {}
        for name, capability in _LISTS.items():
            if wanted.get(name) is True and self._offers(capability, "listChanged"):
                accepted[name] = True
        return accepted

    def _offers(self, capability: str, feature: str) -> bool:
        capabilities = self._session.initialized.get("capabilities")
        found = capabilities.get(capability) if isinstance(capabilities, dict) else None
        return isinstance(found, dict) and found.get(feature) is True

    async def _subscribe(self, listener: Listener, uris: Any, context: CallContext) -> None:
        """Subscribe to resources; refused ones are left out."""
        if not isinstance(uris, list) or not self._offers("resources", "subscribe"):
            return
        if len(uris) > MAX_RESOURCES:
            raise InvalidInput(f"params.notifications.resourceSubscriptions: has more than {MAX_RESOURCES} entries")
        for uri in uris:
            if not isinstance(uri, str) or uri in listener.resources:
                continue
            if self._resources[uri] == 0 and not await self._tell_server("resources/subscribe", uri, context):
                continue
            self._resources[uri] += 1
            listener.resources.add(uri)

    async def _unsubscribe(self, listener: Listener, context: CallContext) -> None:
        for uri in listener.resources:
            self._resources[uri] -= 1
            if self._resources[uri] <= 0:
                del self._resources[uri]
                if self._session.closed_by is None:
                    await self._tell_server("resources/unsubscribe", uri, context)

    async def _tell_server(self, method: str, uri: str, context: CallContext) -> bool:
        clock = CallClock(self._session.server, context, SHORT_REQUEST_TIME)
        try:
            response = await self._session.request_answer(method, {"uri": uri}, context, clock)
        except PaddockError as error:
            log.info("subscription refused by MCP server", server=self._session.server.name, reason=error.message)
            if self._session.closed_by is not None:
                raise
            return False
        return isinstance(response.result, Raw)
