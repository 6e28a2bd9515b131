"""Sessions of clients of older revisions: what a client declared once, its calls under way, and its streams."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Raw

from paddock.errors import QuotaExceeded
from paddock.mcp.protocol.endpoint import CallContext
from paddock.mcp.protocol.messages import JsonRpcMessage, MessageId

if TYPE_CHECKING:
    from paddock.mcp.serving.event_streams import EventStream
    from paddock.mcp.serving.session_calls import SessionCall
    from paddock.mcp.serving.session_listener import SessionListener

MAX_SESSIONS = 1000
"""Sessions of a tenant; the one that was idle for longest makes way."""
IDLE_TIME = 1800.0
"""Seconds without requests and streams after which a session ends."""
SWEEP_INTERVAL = 30.0
SessionOwner: TypeAlias = tuple[str, str, str | None]
"""Tenant, caller and sandbox: possession of a session's id is not enough to use it."""


@dataclass(eq=False)
class ClientSession:
    """A session of one client at one path."""

    owner: SessionOwner
    path: str
    revision: str
    capabilities: Raw
    """Of the client."""
    client_info: Raw | None
    server_capabilities: dict[str, Any] = field(default_factory=dict)
    log_level: str | None = None
    subscribed_uris: set[str] = field(default_factory=set)
    calls: dict[MessageId, SessionCall] = field(default_factory=dict)
    """Requests under way, by the client's ids."""
    streams: OrderedDict[int, SessionCall] = field(default_factory=OrderedDict)
    """Streams that can be resumed, by number; 0 is the listener's."""
    client_answers: dict[MessageId, asyncio.Future[JsonRpcMessage]] = field(default_factory=dict)
    """Requests to the client that it has not answered."""
    listener: SessionListener | None = None
    event_stream: EventStream | None = None
    """The only stream of a client of the HTTP+SSE transport; the session ends with it."""
    id: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    used_at: float = field(default_factory=time.monotonic)
    _numbers: int = 0

    def touch(self) -> None:
        self.used_at = time.monotonic()

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    @property
    def is_in_use(self) -> bool:
        # An event stream has a listener once the client has sent `initialize`.
        return bool(self.calls) or (self.listener is not None and self.listener.is_read)

    async def close(self) -> None:
        """Cancel the calls and streams of the session."""
        for stream in [*self.calls.values(), *self.streams.values()]:
            await stream.close()
        self.calls.clear()
        self.streams.clear()
        if self.listener is not None:
            await self.listener.close()
        if self.event_stream is not None:
            await self.event_stream.end()
        for answer in self.client_answers.values():
            answer.cancel()


class ClientSessions:
    """All sessions of an edge, bounded by tenant, and ended when they are idle."""

    def __init__(self, max_sessions: int = MAX_SESSIONS, idle_time: float = IDLE_TIME) -> None:
        self._max_sessions = max_sessions
        self._idle_time = idle_time
        self._sessions: OrderedDict[str, ClientSession] = OrderedDict()
        """By id, least recently used first."""
        self._sweeping: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._sessions)

    async def add(self, session: ClientSession) -> None:
        """Add a session. Raises `QuotaExceeded` if all sessions of the tenant are in use."""
        of_tenant = [each for each in self._sessions.values() if each.owner[0] == session.owner[0]]
        if len(of_tenant) >= self._max_sessions:
            # Callers make way for their own sessions first.
            of_tenant.sort(key=lambda each: each.owner != session.owner)
            idle = next((each for each in of_tenant if not each.is_in_use), None)
            if idle is None:
                raise QuotaExceeded(f"the tenant has {self._max_sessions} MCP sessions in use; end one first")
            await self.end(idle)
        self._sessions[session.id] = session
        if self._sweeping is None or self._sweeping.done():
            self._sweeping = asyncio.create_task(self._sweep())

    def find(self, session_id: str, path: str, context: CallContext) -> ClientSession | None:
        """Return a session of this caller at this path."""
        session = self._sessions.get(session_id)
        if session is None or session.path != path or session.owner != owner_of(context):
            return None
        self._sessions.move_to_end(session_id)
        session.touch()
        return session

    async def end(self, session: ClientSession) -> None:
        if self._sessions.pop(session.id, None) is not None:
            await session.close()

    def end_listeners(self) -> None:
        """End the streams for changes of all sessions."""
        for session in self._sessions.values():
            if session.listener is not None:
                session.listener.buffer.close()
            if session.event_stream is not None:
                session.event_stream.end_after_calls()

    async def close(self) -> None:
        """End all sessions."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)
        while self._sessions:
            await self.end(next(iter(self._sessions.values())))

    async def _sweep(self) -> None:
        while self._sessions:
            await asyncio.sleep(min(SWEEP_INTERVAL, self._idle_time))
            now = time.monotonic()
            for session in list(self._sessions.values()):
                if session.is_in_use:
                    session.touch()
                elif now - session.used_at >= self._idle_time:
                    await self.end(session)


def owner_of(context: CallContext) -> SessionOwner:
    return str(context.tenant), context.caller, context.sandbox
