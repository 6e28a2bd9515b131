"""Sessions with a shared server: one for each client session or caller, and each set of client capabilities."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TypeAlias

import structlog
from msgspec import UnsetType

from paddock.errors import PaddockError, QuotaExceeded, Unavailable
from paddock.mcp.protocol import CallContext, JsonRpcMessage
from paddock.mcp.protocol.messages import decode_value
from paddock.mcp.protocol.revisions import LISTEN
from paddock.mcp.upstreams.call_clock import CallClock
from paddock.mcp.upstreams.request_fields import RequestFields, request_fields
from paddock.mcp.upstreams.sessions.legacy_translation import request_digest
from paddock.mcp.upstreams.sessions.notification_fields import NotificationFields
from paddock.mcp.upstreams.sessions.session_channel import SessionChannel, SessionExpired
from paddock.mcp.upstreams.sessions.session_handshake import initialize_session
from paddock.mcp.upstreams.sessions.subscriptions import Subscriptions
from paddock.mcp.upstreams.sessions.suspended_calls import SuspendedCalls
from paddock.mcp.upstreams.sessions.upstream_session import UpstreamSession, invalid_state_error
from paddock.mcp.upstreams.subscription_renewal import renewed_subscription
from paddock.mcp.upstreams.task_set import TaskSet
from paddock.model.mcp import McpServer

MAX_SESSIONS = 1_000
IDLE_TIME = 900.0
"""Seconds after which an unused session is ended."""

_SessionKey: TypeAlias = tuple[str | None, ...]
log = structlog.get_logger()


class SessionEntry:
    """A session, its subscriptions, and when it was used last."""

    def __init__(self, session: UpstreamSession, subscriptions: Subscriptions) -> None:
        self.session = session
        self.subscriptions = subscriptions
        self.users = 0
        self.is_discarded = False
        """Whether the session is ended as soon as nothing uses it."""
        self.idle_timer: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        return self.users == 0 and not self.session.is_busy


class SessionPool:
    """Requests to a server with sessions. Expired sessions are renewed."""

    def __init__(
        self,
        server: McpServer,
        open_channel: Callable[[], SessionChannel],
        on_notification: Callable[[JsonRpcMessage], None] = lambda message: None,
        idle_time: float = IDLE_TIME,
    ) -> None:
        self._server = server
        self._open_channel = open_channel
        self._on_notification = on_notification
        self._idle_time = idle_time
        self._entries: OrderedDict[_SessionKey, SessionEntry] = OrderedDict()
        self._opening: dict[_SessionKey, asyncio.Lock] = {}
        self._suspended = SuspendedCalls()
        self._tasks = TaskSet()

    async def exchange(self, request: JsonRpcMessage, context: CallContext) -> AsyncGenerator[JsonRpcMessage, None]:
        """Send a request in the session of its client. Raises `PaddockError`."""
        fields = request_fields(request)
        if await self.is_stateless(fields, context):
            messages = self._send(request, fields, context)
        elif request.method == LISTEN:
            messages = renewed_subscription(lambda: self._listen(request, fields, context))
        elif not isinstance(fields.request_state, UnsetType):
            messages = self._resume(fields.request_state, request, fields, context)
        else:
            messages = self._send(request, fields, context)
        async with aclosing(messages):
            async for message in messages:
                yield message

    async def is_stateless(self, fields: RequestFields, context: CallContext) -> bool:
        """Return whether requests are sent as they are, without the session of a client."""
        return False

    async def connect(self, fields: RequestFields, context: CallContext) -> None:
        """Start the session of a client. Raises `PaddockError`."""
        await self._entry(fields, context)

    async def close(self) -> None:
        entries = list(self._entries.values())
        self._entries.clear()
        await self._tasks.close()
        await asyncio.gather(*(self._end(entry) for entry in entries))

    async def _send(
        self, request: JsonRpcMessage, fields: RequestFields, context: CallContext
    ) -> AsyncGenerator[JsonRpcMessage, None]:
        for attempt in range(2):
            entry = await self._entry(fields, context)
            is_answered = False
            entry.users += 1
            try:
                async with aclosing(entry.session.exchange(request, fields, context)) as messages:
                    async for message in messages:
                        is_answered = True
                        yield message
                return
            except SessionExpired as error:
                entry.subscriptions.close(error)
                self._discard(entry)
                if is_answered or attempt == 1:
                    raise Unavailable(error.message) from None
            finally:
                self._release(entry)

    async def _resume(
        self, state: str, request: JsonRpcMessage, fields: RequestFields, context: CallContext
    ) -> AsyncGenerator[JsonRpcMessage, None]:
        found = self._suspended.resume(state, context, request_digest(request))
        if found is None or not isinstance(found.owner, UpstreamSession):
            yield invalid_state_error(request)
            return
        async with aclosing(found.owner.resume(found, request, fields, context)) as messages:
            async for message in messages:
                yield message

    async def _listen(
        self, request: JsonRpcMessage, fields: RequestFields, context: CallContext
    ) -> AsyncGenerator[JsonRpcMessage, None]:
        """Yield notifications until the session ends."""
        entry = await self._entry(fields, context)
        entry.users += 1
        try:
            async with aclosing(entry.subscriptions.listen(request, context)) as messages:
                async for message in messages:
                    yield message
        finally:
            self._release(entry)

    async def _entry(self, fields: RequestFields, context: CallContext) -> SessionEntry:
        key = _session_key(fields, context)
        if (entry := self._entries.get(key)) is not None:
            self._entries.move_to_end(key)
            return entry
        lock = self._opening.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                if (entry := self._entries.get(key)) is not None:
                    return entry
                await self._make_room()
                entry = await self._open(key, fields, context)
                if (earlier := self._entries.get(key)) is not None:
                    await entry.session.close()
                    return earlier
                self._entries[key] = entry
                return entry
        finally:
            if not lock.locked():
                self._opening.pop(key, None)

    async def _open(self, key: _SessionKey, fields: RequestFields, context: CallContext) -> SessionEntry:
        def on_notification(message: JsonRpcMessage, found: NotificationFields) -> None:
            subscriptions.publish(message, found)
            self._on_notification(message)

        def on_closed(error: PaddockError) -> None:
            if (entry := self._entries.get(key)) is not None and entry.session is session:
                del self._entries[key]
                self._tasks.spawn(self._end(entry))
            subscriptions.close(error)

        session = UpstreamSession(self._server, self._open_channel(), self._suspended, on_notification, on_closed)
        subscriptions = Subscriptions(session)
        clock = CallClock(self._server, context, self._server.timeouts.start)
        try:
            await session.open(context, clock)
            await initialize_session(session, fields, context, clock)
        except BaseException:
            await session.close()
            raise
        return SessionEntry(session, subscriptions)

    async def _make_room(self) -> None:
        """End the session that was not used for the longest time if there are too many."""
        if len(self._entries) < MAX_SESSIONS:
            return
        idle = next((entry for entry in self._entries.values() if entry.is_idle), None)
        if idle is None:
            raise QuotaExceeded(f"the MCP server {self._server.name} has {MAX_SESSIONS} sessions in use; try later")
        self._discard(idle)

    def _release(self, entry: SessionEntry) -> None:
        """End a session that is not used again for some time."""
        entry.users -= 1
        self._release_unused(entry)

    def _release_unused(self, entry: SessionEntry) -> None:
        if entry.idle_timer is not None:
            entry.idle_timer.cancel()
        if entry.is_discarded and entry.users == 0:
            self._tasks.spawn(self._end(entry))
        elif entry.session.closed_by is None:
            loop = asyncio.get_running_loop()
            entry.idle_timer = loop.call_later(self._idle_time, self._on_idle, entry)

    def _on_idle(self, entry: SessionEntry) -> None:
        if entry.is_idle:
            self._discard(entry)
        else:
            entry.users += 1
            self._release(entry)

    def _discard(self, entry: SessionEntry) -> None:
        """Use a session for no further request, and end it when no request uses it any more."""
        for key in [key for key, each in self._entries.items() if each is entry]:
            del self._entries[key]
            entry.is_discarded = True
            if entry.users == 0:
                self._tasks.spawn(self._end(entry))

    async def _end(self, entry: SessionEntry) -> None:
        if entry.idle_timer is not None:
            entry.idle_timer.cancel()
        await entry.session.close()


def _session_key(fields: RequestFields, context: CallContext) -> _SessionKey:
    capabilities = fields.meta.capabilities
    declared = None if isinstance(capabilities, UnsetType) else json.dumps(decode_value(capabilities), sort_keys=True)
    who = (context.tenant, context.caller, context.client_session)
    # Clients without sessions share one for each sandbox and chat.
    return who + ((None, None) if context.client_session else (context.sandbox, context.session)) + (declared,)
