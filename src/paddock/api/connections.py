"""Connections of the main port: uvicorn's, but they do not wait for ever for a request to begin."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Mapping
from typing import Any, cast

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from paddock.api.quick import Lent, is_quick
from paddock.llm.wire.heads import MAX_HEAD, MAX_HEADERS, size_of, status_line
from paddock.llm.wire.inbound import LINGER, House

TAKE = "paddock.take"
"""The extension of a WebSocket's scope under which its `Take` is found."""
HEAD_WITHIN = 20.0
"""Seconds from the first byte of a request, or from the connection, to the end of its headers."""
_TOO_LONG = f"the headers are longer than {MAX_HEAD} bytes"
_CODES: Mapping[int, str] = {400: "INVALID_INPUT", 408: "TIMEOUT", 431: "TOO_LARGE"}
_MALFORMED = "this is not HTTP as it should be"


class Connection(HttpToolsProtocol):
    """Bounds the time, the size and the number of the headers of each request.

    Lends itself to the LLM proxy for small requests to models.
    """

    quick: House | None = None
    _head_timer: asyncio.TimerHandle | None = None
    _reads = False
    """Whether some of a request has come, but not all."""
    _in_head = False
    _head_size = 0
    _unused = 0
    """Bytes received since the last complete head or the last byte of a body."""
    _progress = False
    _hosts = 0
    _refusal: tuple[int, str] | None = None
    """Status and message for the client once its request breaks a bound."""
    _refused = False

    @classmethod
    def lending(cls, house: House) -> type[Connection]:
        """Connections that are lent to this house."""
        return type("Connection", (cls,), {"quick": house})

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        if self.quick is not None and self._rests() and is_quick(data):
            self._head_came()
            self._unset_keepalive_if_required()
            self.connections.discard(self)
            lent = Lent(self.quick, self.loop, self._take_back)
            self.transport.set_protocol(lent)
            lent.connection_made(self.transport)
            lent.data_received(data)
        else:
            self._read(data)

    def _read(self, data: bytes) -> None:
        self._progress = False
        super().data_received(data)
        if self._progress:
            self._unused = 0
            return
        # Part of a head, a chunk's extension or a trailer: none of them may go on for ever.
        self._unused += len(data)
        if self._unused > MAX_HEAD and not self._refused and not self.transport.is_closing():
            self._refuse(431, _TOO_LONG)

    def _rests(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return not self._reads and not self.pipeline and (cycle is None or cycle.response_complete)

    def _take_back(self, data: bytes) -> None:
        self.connections.add(self)
        self.transport.set_protocol(self)
        self._await_head()
        self._read(data)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_came()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._reads = self._in_head = True
        self._head_size = self._hosts = 0
        self._await_head()

    def on_url(self, url: bytes) -> None:
        self._measure(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            return  # A trailer.
        self._measure(size_of([(name, value)]))
        super().on_header(name, value)
        if len(self.headers) > MAX_HEADERS:
            raise self._stop(431, f"the request has more than {MAX_HEADERS} headers")
        if self.headers[-1][0] == b"host":
            self._hosts += 1
            if self._hosts > 1:
                raise self._stop(400, "the header host may be given once")

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._progress = True
        self._head_came()
        if self.parser.get_http_version() == "1.0" and any(name == b"transfer-encoding" for name, _ in self.headers):
            raise self._stop(400, "HTTP/1.0 has no transfer-encoding; send a content-length")
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._progress = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._reads = False
        self._progress = True
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(*(self._refusal or (400, _MALFORMED)))

    def _measure(self, size: int) -> None:
        self._head_size += size
        if self._head_size > MAX_HEAD:
            raise self._stop(431, _TOO_LONG)

    def _stop(self, status: int, message: str) -> Exception:
        """Return the exception that makes the parser stop."""
        self._refusal = status, message
        return ValueError(message)

    def _refuse(self, status: int, message: str) -> None:
        """Answer, then read and drop for a moment: closing at once would take the answer from the client."""
        self._refused = True
        self._head_came()
        if self.transport.is_closing():
            return
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            if self._in_head or cycle.response_started or not cycle.more_body:
                # The answer to an earlier request is under way; another must not fall into it.
                self.transport.close()
                return
            cycle.disconnected = True
            cycle.message_event.set()
        self.transport.write(_refusal_bytes(status, message))
        self.transport.write_eof()
        self.loop.call_later(LINGER, self.transport.close)

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_WITHIN, self._too_slow)

    def _head_came(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _too_slow(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self._refuse(408, "the head of the request came too slowly")


def _refusal_bytes(status: int, message: str) -> bytes:
    code = _CODES[status]
    body = json.dumps({"code": code, "message": message}).encode()
    head = f"content-type: application/json\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    return b"%b\r\n%b%b" % (status_line(status), head.encode(), body)


class Take:
    """Hands over a WebSocket's own socket, for those who drive it themselves.

    Call `hold` before the WebSocket is accepted, so that nothing of what the client then says is read here.
    """

    def __init__(self, connection: WebSocketConnection) -> None:
        self._connection = connection

    def hold(self) -> None:
        self._connection.transport.pause_reading()
        # Until all has been sent, what is sent counts as too much, so that `writable` tells when that is.
        self._connection.transport.set_write_buffer_limits(0)

    def abort(self) -> None:
        """End the connection at once, whatever is still to be sent: its client takes nothing."""
        self._connection.transport.abort()

    async def __call__(self) -> socket.socket:
        """The socket, once the handshake has been sent; from now on nothing is written or closed here.

        It is a duplicate, since a loop watches no descriptor that one of its transports has. Raises `OSError` when the
        client is gone or has said something too early.
        """
        connection = self._connection
        connection.taken = True
        connection.stop_keepalive()
        async with asyncio.timeout(HEAD_WITHIN):
            await connection.writable.wait()
        if connection.transport.is_closing() or connection.spoke:
            raise ConnectionAbortedError("the client is gone, or spoke before the connection was open")
        return socket.socket(fileno=os.dup(connection.transport.get_extra_info("socket").fileno()))


class WebSocketConnection(WebSocketsSansIOProtocol):
    """Offers its socket to the application, as an extension of the scope."""

    taken = False

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.response.status_code == 101 and self.scheme == "ws":
            extensions = cast(dict[str, Any], self.scope["extensions"])
            extensions[TAKE] = Take(self)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.handshake_exc is not None and not (self.handshake_initiated or self.handshake_complete):
            # The WebSocket library has bounds of its own for the opening handshake, and answers nothing beyond them.
            self.handshake_complete = True
            self.transport.write(_refusal_bytes(431, "a header of the WebSocket handshake is too long"))
            self.transport.close()

    def shutdown(self) -> None:
        # Whoever has taken the socket says goodbye in their own time; a close frame now could fall into one of theirs.
        if not self.taken:
            super().shutdown()

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            # uvicorn takes a handshake that was refused by an HTTP answer for one that was never answered.
            self.handshake_complete = True

    @property
    def spoke(self) -> bool:
        """Whether anything came after the request that nobody has read."""
        return not self.queue.empty() or bool(self.conn.reader.buffer)
