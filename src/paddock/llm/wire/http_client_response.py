"""The response of an upstream: buffers its bytes between the connection and the reader."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from paddock.llm.wire.base import Headers, PieceSink, UpstreamBroken, UpstreamError, UpstreamResponse

MAX_WHOLE_BYTES = 256 * 1024 * 1024
"""Largest body that is read as a whole, in bytes."""
HIGH_WATER_BYTES = 512 * 1024
"""Buffered bytes above which reading from the upstream pauses."""


class ResponseConnection(Protocol):
    """The connection that a response comes over."""

    def resume(self) -> None:
        """Resume reading from the upstream; the reader has caught up."""

    def abort(self) -> None:
        """Drop the connection; the rest of the response is not read."""


class HttpClientResponse(UpstreamResponse):
    """A response from its head on; it outlives the connection it came over."""

    def __init__(self, connection: ResponseConnection, loop: asyncio.AbstractEventLoop) -> None:
        self.status = 0
        self.headers: Headers = []
        self.has_bytes = False
        """Whether any byte of the response has come."""
        self._loop = loop
        self._connection: ResponseConnection | None = connection
        self._body: bytes | bytearray = b""
        self._limit = HIGH_WATER_BYTES
        self._over = False
        self._error: UpstreamError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._sink: PieceSink | None = None
        self._full = False
        self._sink_error: Exception | None = None

    async def wait_for_head(self) -> None:
        """Wait for the head. A cancelled wait closes the connection, because no reader is left."""
        try:
            while not self.status and self._error is None:
                await self._wait()
        except BaseException:
            self.close()
            raise
        if not self.status and self._error is not None:
            raise self._error

    async def read(self) -> bytes:
        self._limit = MAX_WHOLE_BYTES
        while not self._over:
            if len(self._body) > self._limit:
                self.close()
                raise response_too_long_error()
            if self._connection is not None:
                self._connection.resume()
            await self._wait()
        if self._error is not None:
            raise self._error
        return self._take()

    async def read_piece(self) -> bytes:
        # A cancelled wait loses no data, so the caller may read again later.
        while not self._body and not self._over:
            await self._wait()
        if self._body:
            data = self._take()
            if self._connection is not None:
                self._connection.resume()
            return data
        if self._error is not None:
            raise self._error
        return b""

    async def pipe_to(self, sink: PieceSink, drained: Callable[[], Awaitable[None]]) -> None:
        # Pieces go from one connection to the other without waking the task.
        try:
            while not self._over or self._body:
                if self._body:
                    self._full = not sink(self._take())
                else:
                    if self._connection is not None:
                        self._connection.resume()
                    self._sink = sink
                    await self._wait()
                    self._sink = None
                if self._sink_error is not None:
                    raise self._sink_error
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
        """Buffer some of the body. A single piece is kept as it is, several are joined."""
        if not self._body:
            self._body = data
        elif isinstance(self._body, bytes):
            self._body = bytearray(self._body)
            self._body += data
        else:
            self._body += data

    def notify_reader(self) -> bool:
        """Wake the reader, and return whether more is buffered than the limit allows."""
        if self._sink is not None:
            self._push_to_sink(self._sink)
        elif self._limit != MAX_WHOLE_BYTES and self._body:
            self.wake()
        return len(self._body) > self._limit

    def _push_to_sink(self, sink: PieceSink) -> None:
        try:
            if sink(self._take()):
                return
            # The sink is full: buffer further pieces until it drains; beyond the limit the upstream is paused.
            self._sink = None
            self._full = True
        except Exception as error:
            self._sink_error = error
        self.wake()

    @property
    def reads_whole(self) -> bool:
        return self._limit == MAX_WHOLE_BYTES

    def finish(self, error: UpstreamError | None = None) -> None:
        """Mark the response as over, with the error that ended it, if any."""
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


def response_too_long_error() -> UpstreamBroken:
    return UpstreamBroken(f"the answer is longer than {MAX_WHOLE_BYTES} bytes")
