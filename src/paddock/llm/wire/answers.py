"""Answers of upstreams, as their bytes come in and somebody reads them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from paddock.llm.providers.base import Answered, Sink
from paddock.llm.wire.base import Broken, Headers, UpstreamError

MAX_WHOLE = 256 * 1024 * 1024
"""Longest body that is read as a whole."""
HIGH_WATER = 512 * 1024
"""How much of a body may wait for its reader before the upstream has to."""


class Line(Protocol):
    """What an answer comes over."""

    def flow(self) -> None:
        """The reader has caught up."""

    def abort(self) -> None:
        """Nobody reads on."""


class ClientAnswer(Answered):
    """An answer from its head on, whatever then becomes of the connection it came over."""

    def __init__(self, connection: Line, loop: asyncio.AbstractEventLoop) -> None:
        self.status = 0
        self.headers: Headers = []
        self.touched = False
        """Whether any byte of it came."""
        self._loop = loop
        self._connection: Line | None = connection
        self._body: bytes | bytearray = b""
        self._limit = HIGH_WATER
        self._over = False
        self._error: UpstreamError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._sink: Sink | None = None
        self._full = False
        self._spilt: Exception | None = None

    async def begun(self) -> None:
        """Wait for the head. Breaks the connection when the wait is cancelled: nobody would ever read the answer."""
        try:
            while not self.status and self._error is None:
                await self._wait()
        except BaseException:
            self.close()
            raise
        if not self.status and self._error is not None:
            raise self._error

    async def read(self) -> bytes:
        self._limit = MAX_WHOLE
        while not self._over:
            if len(self._body) > self._limit:
                self.close()
                raise too_long()
            if self._connection is not None:
                self._connection.flow()
            await self._wait()
        if self._error is not None:
            raise self._error
        return self._take()

    async def piece(self) -> bytes:
        # A wait that is cancelled loses nothing, so a caller may look for other things to do and come back.
        while not self._body and not self._over:
            await self._wait()
        if self._body:
            data = self._take()
            if self._connection is not None:
                self._connection.flow()
            return data
        if self._error is not None:
            raise self._error
        return b""

    async def pour(self, sink: Sink, drained: Callable[[], Awaitable[None]]) -> None:
        # Pieces go from one connection to the other without anybody waking up for them.
        try:
            while not self._over or self._body:
                if self._body:
                    self._full = not sink(self._take())
                else:
                    if self._connection is not None:
                        self._connection.flow()
                    self._sink = sink
                    await self._wait()
                    self._sink = None
                if self._spilt is not None:
                    raise self._spilt
                if self._full:
                    self._full = False
                    await drained()
        finally:
            self._sink = None
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        if self._connection is not None:
            self._connection.abort()
        self._body = b""

    def feed(self, data: bytes) -> None:
        """Some of the body came. One piece is kept as it is; more are gathered, however small they are."""
        if not self._body:
            self._body = data
        elif isinstance(self._body, bytes):
            self._body = bytearray(self._body)
            self._body += data
        else:
            self._body += data

    def fed(self) -> bool:
        """Let the reader know. Says whether there is now more than it should have to take."""
        if self._sink is not None:
            self._give(self._sink)
        elif self._limit != MAX_WHOLE and self._body:
            self.wake()
        return len(self._body) > self._limit

    def _give(self, sink: Sink) -> None:
        try:
            if sink(self._take()):
                return
            # Whoever pours waits for room; meanwhile pieces are gathered, and the upstream has to wait at some point.
            self._sink = None
            self._full = True
        except Exception as error:
            self._spilt = error
        self.wake()

    @property
    def whole(self) -> bool:
        return self._limit == MAX_WHOLE

    def finish(self, error: UpstreamError | None = None) -> None:
        """Nothing more will come."""
        self._connection = None
        self._over = True
        self._error = error
        self.wake()

    def wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def _wait(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _take(self) -> bytes:
        body, self._body = self._body, b""
        return body if isinstance(body, bytes) else bytes(body)


def too_long() -> Broken:
    return Broken(f"the answer is longer than {MAX_WHOLE} bytes")
