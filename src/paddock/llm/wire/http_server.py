"""A small HTTP/1.1 server for possibly hostile clients, over Unix sockets and TCP."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path

import structlog

from paddock.llm.wire.base import Handler
from paddock.llm.wire.descriptor_guard import AdmissionDecision, FileDescriptorGuard, IdleConnection
from paddock.llm.wire.http_heads import MAX_HEAD_BYTES
from paddock.llm.wire.http_server_connection import (
    BodyAdmission,
    HttpConnectionLimits,
    HttpServerConnection,
    MeasureCallback,
    call_unmeasured,
)
from paddock.llm.wire.memory_budget import LISTENER_MEMORY, TOTAL_MEMORY, MemoryBudget

LISTEN_BACKLOG = 1024
CANCEL_SECONDS = 5.0
"""Seconds a handler may take to end after it was cancelled."""
log = structlog.get_logger()


class HttpListener:
    """One listening socket. Its requests carry its tag."""

    def __init__(
        self,
        server: HttpServer,
        tag: str | None,
        max_connections: int,
        guard: FileDescriptorGuard | None,
        memory_budget: MemoryBudget | None = None,
    ) -> None:
        """Without a `memory_budget`, the caller of each large body is identified by the server's `admit_body`."""
        self._guard = guard
        self.tag = tag
        self.closing = False
        self.handler = server.handler
        self.limits = server.limits
        self.measure = server.measure
        self.memory_budget = memory_budget or MemoryBudget(server.listener_memory, server.memory_budget)
        self.admit_body = server.admit_body if memory_budget is None else None
        self._owner = server
        self._max_connections = max_connections
        self._connections: set[HttpServerConnection] = set()
        self._server: asyncio.Server | None = None
        self._path: Path | None = None
        self._inode = 0
        self._empty: asyncio.Event = asyncio.Event()

    @property
    def connections(self) -> int:
        return len(self._connections)

    async def close(self, grace: float = 0.0) -> None:
        """Stop accepting, close idle connections, and give active ones `grace` seconds. Idempotent."""
        self._stop_accepting()
        await self._end_connections(grace)

    def admit(self, transport: asyncio.BaseTransport) -> AdmissionDecision:
        return AdmissionDecision.ADMITTED if self._guard is None else self._guard.admit(transport)

    def enter(self, connection: HttpServerConnection) -> int:
        self._connections.add(connection)
        self._empty.clear()
        allowed = min(self._max_connections - len(self._connections), self._owner.enter(connection))
        return -1 if self.closing and allowed >= 0 else allowed

    def leave(self, connection: HttpServerConnection) -> None:
        self._connections.discard(connection)
        self._owner.leave(connection)
        if not self._connections:
            self._empty.set()

    async def _open(self, sock: socket.socket, path: Path | None) -> None:
        loop = asyncio.get_running_loop()
        sock.setblocking(False)
        if sock.family == socket.AF_UNIX:
            self._path = path
            self._inode = os.stat(path).st_ino if path is not None else 0
            self._server = await loop.create_unix_server(
                lambda: HttpServerConnection(self, loop), sock=sock, backlog=LISTEN_BACKLOG
            )
        else:
            # Accepted connections inherit it; asyncio itself sets it only on some.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._server = await loop.create_server(
                lambda: HttpServerConnection(self, loop), sock=sock, backlog=LISTEN_BACKLOG
            )

    def _stop_accepting(self) -> None:
        """Stop accepting and close idle connections."""
        self.closing = True
        if self._server is not None:
            self._server.close()
        if self._path is not None:
            try:
                # Another listener may have bound the same path since.
                if self._path.stat().st_ino == self._inode:
                    self._path.unlink()
            except FileNotFoundError:
                pass
            self._path = None
        for connection in list(self._connections):
            connection.close_when_idle()

    async def _end_connections(self, grace: float) -> None:
        await self._wait_until_empty(grace)
        for connection in list(self._connections):
            connection.abort()
        await self._wait_until_empty(CANCEL_SECONDS)
        if self._connections:
            log.error("cancelled requests still running", tag=self.tag, requests=len(self._connections))
        elif self._server is not None:
            await self._server.wait_closed()
        self._server = None
        self._owner.forget(self)

    async def _wait_until_empty(self, timeout: float) -> None:
        if self._connections:
            try:
                async with asyncio.timeout(timeout):
                    await self._empty.wait()
            except TimeoutError:
                pass


class HttpServer:
    """Passes the requests of all its listeners to one handler."""

    def __init__(
        self,
        handler: Handler,
        *,
        max_body: int,
        max_connections: int,
        header_timeout: float = 15.0,
        body_timeout: float = 30.0,
        idle_timeout: float = 75.0,
        send_timeout: float = 120.0,
        max_header: int = MAX_HEAD_BYTES,
        memory_budget: MemoryBudget | None = None,
        listener_memory: int = LISTENER_MEMORY,
        admit_body: BodyAdmission | None = None,
        measure: MeasureCallback = call_unmeasured,
        guard: FileDescriptorGuard | None = None,
    ) -> None:
        """`measure` calls the callbacks of connections; `guard` admits them.

        `admit_body` identifies the caller of each large body, on listeners without a memory budget of their own.
        """
        self._guard = guard or FileDescriptorGuard()
        self._guard.add_source(self._list_idle)
        self.handler = handler
        self.measure = measure
        self.memory_budget = memory_budget or MemoryBudget(TOTAL_MEMORY)
        self.listener_memory = listener_memory
        self.admit_body = admit_body
        self.limits = HttpConnectionLimits(
            max_body=max_body,
            max_header=max_header,
            header_timeout=header_timeout,
            body_timeout=body_timeout,
            idle_timeout=idle_timeout,
            send_timeout=send_timeout,
        )
        self._max_connections = max_connections
        self._listeners: list[HttpListener] = []
        self._connections: set[HttpServerConnection] = set()
        self._sweep_every = min(1.0, min(header_timeout, body_timeout, idle_timeout, send_timeout) / 4)
        self._sweeper: asyncio.TimerHandle | None = None

    async def listen_unix(
        self, path: Path, *, tag: str | None = None, mode: int = 0o600, max_connections: int | None = None
    ) -> HttpListener:
        """Listen on a Unix socket at a path, replacing a stale socket.

        `max_connections` bounds this listener alone, so that one sandbox cannot use up the connections of all.
        """
        sock = _bind_unix_socket(path, mode)
        try:
            return await self._listen(sock, tag, max_connections, path)
        except BaseException:
            sock.close()
            raise

    async def listen(
        self,
        sock: socket.socket,
        tag: str | None = None,
        *,
        max_connections: int | None = None,
        memory_budget: MemoryBudget | None = None,
    ) -> HttpListener:
        """Listen on a bound socket, and own it from then on. `memory_budget` is for the bodies of all its clients."""
        return await self._listen(sock, tag, max_connections, None, memory_budget)

    def add_external_listener(self, handler: Handler) -> HttpListener:
        """Return a listener without a socket, for connections accepted elsewhere; they have their own handler."""
        listener = HttpListener(self, None, self._max_connections, None)
        listener.handler = handler
        self._listeners.append(listener)
        return listener

    async def close(self, grace: float = 0.0) -> None:
        """Stop accepting, close idle connections, cancel active ones after `grace` seconds. Idempotent."""
        listeners = list(self._listeners)
        for listener in listeners:
            listener.closing = True
        await asyncio.gather(*(listener.close(grace) for listener in listeners))
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None

    async def _listen(
        self,
        sock: socket.socket,
        tag: str | None,
        max_connections: int | None,
        path: Path | None,
        memory_budget: MemoryBudget | None = None,
    ) -> HttpListener:
        listener = HttpListener(self, tag, max_connections or self._max_connections, self._guard, memory_budget)
        await listener._open(sock, path)
        self._listeners.append(listener)
        return listener

    # Called by listeners.

    def enter(self, connection: HttpServerConnection) -> int:
        self._connections.add(connection)
        if self._sweeper is None:
            self._sweep_later(connection.loop)
        return self._max_connections - len(self._connections)

    def leave(self, connection: HttpServerConnection) -> None:
        self._connections.discard(connection)

    def forget(self, listener: HttpListener) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)

    def _list_idle(self) -> Iterator[IdleConnection]:
        for connection in self._connections:
            since = connection.idle_since()
            if since is not None:
                yield IdleConnection(since, connection.close_when_idle)

    def _sweep_later(self, loop: asyncio.AbstractEventLoop) -> None:
        self._sweeper = loop.call_later(self._sweep_every, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """Expire overdue connections. One periodic pass over all costs less than a timer for each."""
        self._sweeper = None
        now = loop.time()
        _expire_connections((connection for connection in self._connections if connection.deadline <= now), now)
        if self._connections:
            self._sweep_later(loop)


def _bind_unix_socket(path: Path, mode: int) -> socket.socket:
    if path.is_socket():
        path.unlink()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(str(path))
        # No client can connect before the socket listens, so the mode is set in time.
        path.chmod(mode)
    except BaseException:
        sock.close()
        raise
    return sock


def _expire_connections(late: Iterable[HttpServerConnection], now: float) -> None:
    for connection in list(late):
        connection.handle_deadline(now)
