"""A server at an address: finds out its revision on first use, keeps its lists, and records its health."""

from __future__ import annotations

import asyncio
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

_WRONG_ERA = (400, 404, 405)


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
        self._refuses_sessions = False

    async def exchange(self, request: JsonRpcMessage, context: CallContext) -> AsyncGenerator[JsonRpcMessage, None]:
        if not isinstance(request.id, (int, str)):
            raise InvalidInput("a request needs an id")
        clock = CallClock(self.server, context, 2 * self.server.timeouts.start)
        try:
            async with clock.wait():
                connection = await self._connect(request, context)
        except TimeoutError:
            raise clock.timeout_error() from None
        if context.client_session is not None and isinstance(connection, StatelessHttp):
            connection = await self._sessions_of_stateless(connection, request, context)
        # Connecting may have fetched what is asked for.
        slot = self._cache.slot(request, context)
        if slot is not None and (kept := self._cache.find(slot)) is not None:
            yield JsonRpcMessage(id=request.id, result=kept)
            return
        try:
            async with aclosing(connection.exchange(request, context)) as messages:
                async for message in messages:
                    if message.is_notification:
                        self._cache.on_notification(message)
                    elif slot is not None:
                        self._cache.keep(slot, message)
                    if error_code(message) == UNSUPPORTED_VERSION:
                        await self._forget(connection)
                    yield message
        except McpTimeout:
            raise  # One slow call says nothing about the server.
        except Unavailable as error:
            if isinstance(error, HttpRefused) and error.status in (401, 403):
                raise  # Other callers may have valid credentials.
            self._health.record(UpstreamStatus.FAILED, error.message)
            if isinstance(error, SessionRefused) or (isinstance(error, HttpRefused) and error.status in _WRONG_ERA):
                await self._forget(connection)  # The server may speak another revision now.
            raise
        self._health.record(UpstreamStatus.READY)

    async def close(self) -> None:
        self._is_closed = True
        if self._connection is not None:
            await self._forget(self._connection)
        if self._sessions is not None:
            await self._sessions.close()

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
        if self._refuses_sessions:
            return connection
        sessions = self._sessions or SessionPool(
            self.server, lambda: HttpChannel(self._peer), self._cache.on_notification
        )
        try:
            await sessions.connect(request_fields(request), context)
        except PaddockError as error:
            if sessions is not self._sessions:
                await sessions.close()
                self._refuses_sessions = isinstance(error, (HttpRefused, SessionRefused))
            return connection
        if self._sessions is None:
            self._sessions = sessions
        elif sessions is not self._sessions:
            await sessions.close()
            sessions = self._sessions
        return sessions

    async def _forget(self, connection: HttpConnection) -> None:
        """Close a connection; the next request finds out the revision again."""
        if self._connection is connection:
            self._connection = None
            self._cache.clear()
            self._refuses_sessions = False
        await connection.close()
