"""Write the response to one request onto its client connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paddock.llm.wire.base import Headers, ResponseWriter
from paddock.llm.wire.http_heads import CONNECTION_RESPONSE_HEADERS, encode_http_head, http_status_line

if TYPE_CHECKING:
    from paddock.llm.wire.http_server_connection import HttpServerConnection

_BODILESS = (204, 304)
_WRITTEN_WITH_HEAD = 64 * 1024
"""Bytes of a body that are copied to be written together with the head."""


class HttpResponseWriter(ResponseWriter):
    """The response to one request over HTTP/1.1 or 1.0."""

    pushes = True

    def __init__(
        self, connection: HttpServerConnection, *, keep_alive: bool, is_http_1_0: bool, head_only: bool
    ) -> None:
        self.started = False
        self.handler_started = False
        """Whether the handler's task has started."""
        self.finished = False
        """Whether the response is complete or aborted, and no longer needs the connection."""
        self.keep_alive = keep_alive
        """Whether another request may follow on the connection."""
        self.default_header: tuple[bytes, bytes] | None = None
        """A header that is added unless the response already has it."""
        self.status: int | None = None
        self._connection = connection
        self._is_http_1_0 = is_http_1_0
        self._head_only = head_only
        self._head: bytes | None = None

    async def send(self, status: int, headers: Headers, body: bytes) -> None:
        self.send_now(status, headers, body)
        if self._connection.backed_up:
            await self._connection.wait_drained()

    def send_now(self, status: int, headers: Headers, body: bytes) -> None:
        head = self._encode_head(status, headers)
        self.started = self.finished = True
        closing = b"" if self.keep_alive else b"\r\nconnection: close"
        if self._is_http_1_0 and self.keep_alive:
            closing = b"\r\nconnection: keep-alive"
        if status in _BODILESS:
            self._connection.write(b"%b%b\r\n\r\n" % (head, closing))
        else:
            shown = b"" if self._head_only else body
            head = b"%b%b\r\ncontent-length: %d\r\n\r\n" % (head, closing, len(body))
            if len(shown) <= _WRITTEN_WITH_HEAD:
                self._connection.write(head + shown)
            else:
                self._connection.write(head)
                self._connection.write(shown)

    async def start(self, status: int, headers: Headers) -> None:
        head = self._encode_head(status, headers)
        self.started = True
        if status in _BODILESS:
            self._head_only = True
        elif self._is_http_1_0:
            # HTTP/1.0 has no chunks: the end of the connection ends the response.
            self.keep_alive = False
        else:
            head += b"\r\ntransfer-encoding: chunked"
        self._head = head + (b"\r\n\r\n" if self.keep_alive else b"\r\nconnection: close\r\n\r\n")
        # Sent with the first piece if that comes in the same event loop iteration, and alone otherwise.
        self._connection.loop.call_soon(self._send_head)

    async def write(self, data: bytes) -> None:
        if not self.push(data):
            await self._connection.wait_drained()

    def push(self, data: bytes) -> bool:
        if self.finished or not self.started:
            raise RuntimeError("response written before its start or after its end")
        connection = self._connection
        if connection.client_gone:
            raise ConnectionResetError("the client is gone")
        if not data or self._head_only:
            return True
        if not self._is_http_1_0:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        if self._head is not None:
            data = self._head + data
            self._head = None
        connection.write(data)
        return not connection.backed_up

    async def wait_drained(self) -> None:
        await self._connection.wait_drained()

    async def end(self) -> None:
        if not self.started:
            raise RuntimeError("response ended before its start")
        if self.finished:
            return
        self.finished = True
        head, self._head = self._head or b"", None
        last = head if self._head_only or self._is_http_1_0 else head + b"0\r\n\r\n"
        if last and not self._connection.client_gone:
            self._connection.write(last)

    def abort(self) -> None:
        self.finished = True
        self.keep_alive = False
        self._head = None
        self._connection.reset()

    def _encode_head(self, status: int, headers: Headers) -> bytes:
        if self.started or self.finished:
            raise RuntimeError("request answered twice")
        if self._connection.client_gone:
            raise ConnectionResetError("the client is gone")
        self.status = status
        name = self.default_header
        if name is not None and not any(header[0] == name[0] for header in headers):
            headers = [*headers, name]
        return encode_http_head((http_status_line(status),), headers, CONNECTION_RESPONSE_HEADERS)

    def _send_head(self) -> None:
        if self._head is not None and not self._connection.client_gone:
            self._connection.write(self._head)
            self._head = None
