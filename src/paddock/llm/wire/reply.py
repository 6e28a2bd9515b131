"""Writes the answer to one request onto the connection it came over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paddock.llm.wire.base import Headers, Reply
from paddock.llm.wire.heads import OF_ANSWERS, head_bytes, status_line

if TYPE_CHECKING:
    from paddock.llm.wire.inbound import Inbound

_BODILESS = (204, 304)


class WireReply(Reply):
    """The answer to one request over HTTP/1.1 or 1.0."""

    pushes = True

    def __init__(self, connection: Inbound, *, keep: bool, old: bool, head_only: bool) -> None:
        self.started = False
        self.running = False
        """Whether somebody has begun to work on it."""
        self.over = False
        """Whether the answer is complete or has been broken off, so that nobody needs the connection for it."""
        self.keep = keep
        """Whether another request may follow on the connection."""
        self.name: tuple[bytes, bytes] | None = None
        """A header that answers have unless they bring it themselves."""
        self.status: int | None = None
        self._connection = connection
        self._old = old
        self._head_only = head_only
        self._head: bytes | None = None

    async def whole(self, status: int, headers: Headers, body: bytes) -> None:
        self.send_whole(status, headers, body)
        if self._connection.full:
            await self._connection.drained()

    def send_whole(self, status: int, headers: Headers, body: bytes) -> None:
        head = self._begin(status, headers)
        self.started = self.over = True
        closing = b"" if self.keep else b"\r\nconnection: close"
        if self._old and self.keep:
            closing = b"\r\nconnection: keep-alive"
        if status in _BODILESS:
            self._connection.write(b"%b%b\r\n\r\n" % (head, closing))
        else:
            shown = b"" if self._head_only else body
            self._connection.write(b"%b%b\r\ncontent-length: %d\r\n\r\n%b" % (head, closing, len(body), shown))

    async def start(self, status: int, headers: Headers) -> None:
        head = self._begin(status, headers)
        self.started = True
        if status in _BODILESS:
            self._head_only = True
        elif self._old:
            # Only the end of the connection can end such an answer.
            self.keep = False
        else:
            head += b"\r\ntransfer-encoding: chunked"
        self._head = head + (b"\r\n\r\n" if self.keep else b"\r\nconnection: close\r\n\r\n")
        # It goes out with the first piece when that comes in the same turn of the event loop, and alone otherwise.
        self._connection.loop.call_soon(self._send_head)

    async def write(self, data: bytes) -> None:
        if not self.push(data):
            await self._connection.drained()

    def push(self, data: bytes) -> bool:
        if self.over or not self.started:
            raise RuntimeError("an answer is written between its start and its end")
        connection = self._connection
        if connection.gone:
            raise ConnectionResetError("the client is gone")
        if not data or self._head_only:
            return True
        if not self._old:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        if self._head is not None:
            data = self._head + data
            self._head = None
        connection.write(data)
        return not connection.full

    async def drained(self) -> None:
        await self._connection.drained()

    async def end(self) -> None:
        if not self.started:
            raise RuntimeError("an answer is started before it ends")
        if self.over:
            return
        self.over = True
        head, self._head = self._head or b"", None
        last = head if self._head_only or self._old else head + b"0\r\n\r\n"
        if last and not self._connection.gone:
            self._connection.write(last)

    def abort(self) -> None:
        self.over = True
        self.keep = False
        self._head = None
        self._connection.reset()

    def _begin(self, status: int, headers: Headers) -> bytes:
        if self.started or self.over:
            raise RuntimeError("a request is answered once")
        if self._connection.gone:
            raise ConnectionResetError("the client is gone")
        self.status = status
        name = self.name
        if name is not None and not any(header[0] == name[0] for header in headers):
            headers = [*headers, name]
        return head_bytes((status_line(status),), headers, OF_ANSWERS)

    def _send_head(self) -> None:
        if self._head is not None and not self._connection.gone:
            self._connection.write(self._head)
            self._head = None
