"""The door: a small HTTP/1.1 server for clients that may be hostile, over Unix sockets and TCP."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterable
from pathlib import Path

import structlog

from paddock.llm.wire.base import Handler
from paddock.llm.wire.heads import MAX_HEAD
from paddock.llm.wire.inbound import Inbound, Limits
from paddock.llm.wire.rooms import HELD_BY_ALL, HELD_BY_ONE, Room

BACKLOG = 1024
LAST_WAIT = 5.0
"""How long a handler may take to end once it has been cancelled."""
log = structlog.get_logger()


class Listener:
    """One socket that lets clients in. Requests that come through it carry its tag."""

    def __init__(self, door: Door, tag: str | None, max_connections: int) -> None:
        self.tag = tag
        self.closing = False
        self.handler = door.handler
        self.limits = door.limits
        self.room = Room(door.held_by_one, door.room)
        self._door = door
        self._max_connections = max_connections
        self._connections: set[Inbound] = set()
        self._server: asyncio.Server | None = None
        self._path: Path | None = None
        self._inode = 0
        self._empty: asyncio.Event = asyncio.Event()

    @property
    def connections(self) -> int:
        return len(self._connections)

    async def close(self, grace: float = 0.0) -> None:
        """Let nobody in, end connections that rest, and give those at work some seconds. Idempotent."""
        self._shut()
        await self._end(grace)

    def enter(self, connection: Inbound) -> int:
        self._connections.add(connection)
        self._empty.clear()
        room = min(self._max_connections - len(self._connections), self._door.enter(connection))
        return -1 if self.closing and room >= 0 else room

    def leave(self, connection: Inbound) -> None:
        self._connections.discard(connection)
        self._door.leave(connection)
        if not self._connections:
            self._empty.set()

    async def _open(self, sock: socket.socket, path: Path | None) -> None:
        loop = asyncio.get_running_loop()
        sock.setblocking(False)
        if sock.family == socket.AF_UNIX:
            self._path = path
            self._inode = os.stat(path).st_ino if path is not None else 0
            self._server = await loop.create_unix_server(lambda: Inbound(self, loop), sock=sock, backlog=BACKLOG)
        else:
            # Connections inherit it; asyncio itself sets it only on some.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._server = await loop.create_server(lambda: Inbound(self, loop), sock=sock, backlog=BACKLOG)

    def _shut(self) -> None:
        """Let nobody in, and have those who rest go."""
        self.closing = True
        if self._server is not None:
            self._server.close()
        if self._path is not None:
            try:
                # Another listener may have taken the name since.
                if self._path.stat().st_ino == self._inode:
                    self._path.unlink()
            except FileNotFoundError:
                pass
            self._path = None
        for connection in list(self._connections):
            connection.hang_up()

    async def _end(self, grace: float) -> None:
        await self._until_empty(grace)
        for connection in list(self._connections):
            connection.cut()
        await self._until_empty(LAST_WAIT)
        if self._connections:
            log.error("requests go on although they were cancelled", tag=self.tag, requests=len(self._connections))
        elif self._server is not None:
            await self._server.wait_closed()
        self._server = None
        self._door.forget(self)

    async def _until_empty(self, timeout: float) -> None:
        if self._connections:
            try:
                async with asyncio.timeout(timeout):
                    await self._empty.wait()
            except TimeoutError:
                pass


class Door:
    """Hands requests to a handler, whoever sends them through any of its listeners."""

    def __init__(
        self,
        handler: Handler,
        *,
        max_body: int,
        max_connections: int,
        header_timeout: float = 15.0,
        body_timeout: float = 60.0,
        idle_timeout: float = 75.0,
        send_timeout: float = 120.0,
        max_header: int = MAX_HEAD,
        room: Room | None = None,
        held_by_one: int = HELD_BY_ONE,
    ) -> None:
        self.handler = handler
        self.room = room or Room(HELD_BY_ALL)
        self.held_by_one = held_by_one
        self.limits = Limits(
            max_body=max_body,
            max_header=max_header,
            header_timeout=header_timeout,
            body_timeout=body_timeout,
            idle_timeout=idle_timeout,
            send_timeout=send_timeout,
        )
        self._max_connections = max_connections
        self._listeners: list[Listener] = []
        self._connections: set[Inbound] = set()
        self._sweep_every = min(1.0, min(header_timeout, body_timeout, idle_timeout, send_timeout) / 4)
        self._sweeper: asyncio.TimerHandle | None = None

    async def listen_unix(
        self, path: Path, *, tag: str | None = None, mode: int = 0o600, max_connections: int | None = None
    ) -> Listener:
        """Listen on a Unix socket at a path, in the place of any socket that was left there.

        `max_connections` bounds those of this listener alone, so that one sandbox cannot take the room of all.
        """
        sock = _bound(path, mode)
        try:
            return await self._listen(sock, tag, max_connections, path)
        except BaseException:
            sock.close()
            raise

    async def listen(
        self, sock: socket.socket, tag: str | None = None, *, max_connections: int | None = None
    ) -> Listener:
        """Listen on a bound socket, which is the door's from then on."""
        return await self._listen(sock, tag, max_connections, None)

    def adopt(self, handler: Handler) -> Listener:
        """A listener without a socket, for connections that somebody else has let in; they have their own handler."""
        listener = Listener(self, None, self._max_connections)
        listener.handler = handler
        self._listeners.append(listener)
        return listener

    async def close(self, grace: float = 0.0) -> None:
        """Let nobody in, end connections that rest, give those at work some seconds, then cancel them. Idempotent."""
        listeners = list(self._listeners)
        for listener in listeners:
            listener.closing = True
        await asyncio.gather(*(listener.close(grace) for listener in listeners))
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None

    async def _listen(
        self, sock: socket.socket, tag: str | None, max_connections: int | None, path: Path | None
    ) -> Listener:
        listener = Listener(self, tag, max_connections or self._max_connections)
        await listener._open(sock, path)
        self._listeners.append(listener)
        return listener

    # For its listeners.

    def enter(self, connection: Inbound) -> int:
        self._connections.add(connection)
        if self._sweeper is None:
            self._sweep_later(connection.loop)
        return self._max_connections - len(self._connections)

    def leave(self, connection: Inbound) -> None:
        self._connections.discard(connection)

    def forget(self, listener: Listener) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)

    def _sweep_later(self, loop: asyncio.AbstractEventLoop) -> None:
        self._sweeper = loop.call_later(self._sweep_every, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """End what has taken too long. One look at all connections now and then costs less than a timer for each."""
        self._sweeper = None
        now = loop.time()
        _expire((connection for connection in self._connections if connection.deadline <= now), now)
        if self._connections:
            self._sweep_later(loop)


def _bound(path: Path, mode: int) -> socket.socket:
    if path.is_socket():
        path.unlink()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(str(path))
        # Nobody can connect before it listens, so nobody gets in before the mode is right.
        path.chmod(mode)
    except BaseException:
        sock.close()
        raise
    return sock


def _expire(late: Iterable[Inbound], now: float) -> None:
    for connection in list(late):
        connection.expire(now)
