"""A server at an address: finds out its revision on first use, keeps its lists, and records its health."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Protocol

from paddock.errors import InvalidInput, McpTimeout, PaddockError, Unavailable
from paddock.mcp.protocol import CallContext, JsonRpcMessage
from paddock.mcp.protocol.messages import UNSUPPORTED_VERSION
from paddock.mcp.upstreams.base import Upstream, UpstreamDependencies, UpstreamStatus
from paddock.mcp.upstreams.call_clock import CallClock
from paddock.mcp.upstreams.http.http_answer import HttpRefused
from paddock.mcp.upstreams.http.http_channel import HttpChannel
from paddock.mcp.upstreams.http.http_era import detect_connection
from paddock.mcp.upstreams.http.http_peer import HttpPeer
from paddock.mcp.upstreams.http.stateless_http import StatelessHttp
from paddock.mcp.upstreams.request_fields import error_code, request_fields
from paddock.mcp.upstreams.response_cache import ResponseCache
from paddock.mcp.upstreams.retry_delay import RetryDelay
from paddock.mcp.upstreams.sessions.session_channel import SessionRefused
from paddock.mcp.upstreams.sessions.session_pool import SessionPool
from paddock.model.mcp import McpServer

_WRONG_ERA_STATUSES = (400, 404, 405)
_WRONG_ERA_CODES = (UNSUPPORTED_VERSION, -32000, -32001)
"""Codes with which servers refuse requests of another revision, and sometimes others."""
SESSION_RETRY = 60.0
"""Seconds until a stateless server is asked for a session again, if it did not refuse but fail."""
PROBE_INTERVAL = 10.0
"""Seconds between attempts to find out whether a server speaks another revision now."""


class HttpConnection(Protocol):
    """Requests to a server of a known revision."""

    def exchange(self, request: JsonRpcMessage, context: CallContext) -> AsyncGenerator[JsonRpcMessage, None]: ...

    async def close(self) -> None: ...


class RemoteServer(Upstream):
    """A shared server, reached by HTTP."""

    def __init__(self, server: McpServer, dependencies: UpstreamDependencies) -> None:
        super().__init__(server)
        self._peer = HttpPeer(server, dependencies)
        self._cache = ResponseCache()
        self._connection: HttpConnection | None = None
        self._detecting = asyncio.Lock()
        self._retry = RetryDelay()
        self._is_closed = False
        self._sessions: SessionPool | None = None
        """Sessions of clients of older revisions with a server that speaks both."""
        self._no_sessions_until = 0.0
        self._probe_at = 0.0

    async def exchange(self, request: JsonRpcMessage, context: CallContext) -> AsyncGenerator[JsonRpcMessage, None]:
        if not isinstance(request.id, (int, str)):
            raise InvalidInput("a request needs an id")
        is_answered = False
        while True:
            connection = await self._connection_for(request, context)
            # Connecting may have fetched what is asked for.
            slot = self._cache.slot(request, context)
            if slot is not None and (kept := self._cache.find(slot)) is not None:
                yield JsonRpcMessage(id=request.id, result=kept)
                return
            try:
                async with aclosing(connection.exchange(request, context)) as messages:
                    async for message in messages:
                        if error_code(message) in _WRONG_ERA_CODES and not is_answered:
                            if await self._has_other_era(connection, request, context):
                                break
                        elif message.is_notification:
                            self._cache.on_notification(message)
                        elif slot is not None:
                            self._cache.keep(slot, message)
                        is_answered = True
                        yield message
                    else:
                        self._health.record(UpstreamStatus.READY)
                        return
            except McpTimeout:
                raise  # One slow call says nothing about the server.
            except Unavailable as error:
                if isinstance(error, HttpRefused) and error.status in (401, 403):
                    raise  # Other callers may have valid credentials.
                is_refused = isinstance(error, SessionRefused) or (
                    isinstance(error, HttpRefused) and error.status in _WRONG_ERA_STATUSES
                )
                if is_answered or not is_refused or not await self._has_other_era(connection, request, context):
                    self._health.record(UpstreamStatus.FAILED, error.message)
                    raise

    async def close(self) -> None:
        self._is_closed = True
        if self._connection is not None:
            await self._connection.close()
        if self._sessions is not None:
            await self._sessions.close()

    async def _connection_for(self, request: JsonRpcMessage, context: CallContext) -> HttpConnection:
        clock = CallClock(self.server, context, 2 * self.server.timeouts.start)
        try:
            async with clock.wait():
                connection = await self._connect(request, context)
        except TimeoutError:
            raise clock.timeout_error() from None
        if context.client_session is not None and isinstance(connection, StatelessHttp):
            return await self._sessions_of_stateless(connection, request, context)
        return connection

    async def _connect(self, request: JsonRpcMessage, context: CallContext) -> HttpConnection:
        """Return the connection; the first caller finds out the server's revision."""
        if self._connection is not None:
            return self._connection
        async with self._detecting:
            if self._connection is not None:
                return self._connection
            if self._is_closed:
                raise Unavailable(f"the connection to the MCP server {self.server.name} was closed")
            self._retry.check(time.monotonic())
            self._health.record(UpstreamStatus.STARTING)
            try:
                self._connection = await detect_connection(self._peer, self._cache, request_fields(request), context)
            except PaddockError as error:
                is_callers = isinstance(error, HttpRefused) and error.status in (401, 403)
                self._health.record(UpstreamStatus.IDLE if is_callers else UpstreamStatus.FAILED, error.message)
                if isinstance(error, Unavailable) and not is_callers:
                    self._retry.failed(time.monotonic(), error)
                raise
            except asyncio.CancelledError:
                self._health.record(UpstreamStatus.IDLE)
                raise
            self._retry.succeeded()
            self._health.record(UpstreamStatus.READY)
            return self._connection

    async def _sessions_of_stateless(
        self, connection: HttpConnection, request: JsonRpcMessage, context: CallContext
    ) -> HttpConnection:
        """Return sessions for a client that has one itself, if the server speaks both: nothing is translated then."""
        if time.monotonic() < self._no_sessions_until:
            return connection
        sessions = self._sessions or SessionPool(
            self.server, lambda: HttpChannel(self._peer), self._cache.on_notification
        )
        try:
            await sessions.connect(request_fields(request), context)
        except PaddockError as error:
            if sessions is not self._sessions:
                await sessions.close()
                is_refused = isinstance(error, (HttpRefused, SessionRefused))
                self._no_sessions_until = math.inf if is_refused else time.monotonic() + SESSION_RETRY
            return connection
        if self._sessions is None:
            self._sessions = sessions
        elif sessions is not self._sessions:
            await sessions.close()
            sessions = self._sessions
        return sessions

    async def _has_other_era(self, connection: HttpConnection, request: JsonRpcMessage, context: CallContext) -> bool:
        """Find out the revision again after a refusal; True if another connection is used from now on.

        The refused request was not carried out. Sessions of other callers are ended only if the server has none any
        more.
        """
        async with self._detecting:
            if self._connection is not connection:
                return self._connection is not None and connection is not self._sessions
            now = time.monotonic()
            if now < self._probe_at or self._is_closed:
                return False
            self._probe_at = now + PROBE_INTERVAL
            try:
                found = await detect_connection(self._peer, self._cache, request_fields(request), context)
            except PaddockError:
                return False
            if isinstance(found, type(connection)):
                await found.close()
                return False
            self._connection = found
            self._cache.clear()
            self._no_sessions_until = 0.0
            await connection.close()
            return True
