"""Connections of the main port: uvicorn's, but they do not wait for ever for a request to begin."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from paddock.api.quick import Lent, is_quick
from paddock.llm.wire.inbound import House

TAKE = "paddock.take"
"""The extension of a WebSocket's scope under which its `Take` is found."""
HEAD_WITHIN = 20.0
"""Seconds from the first byte of a request, or from the connection, to the end of its headers."""
_TOO_SLOW = (
    b"HTTP/1.1 408 Request Timeout\r\ncontent-type: application/json\r\ncontent-length: 70\r\nconnection: close\r\n\r\n"
    b'{"code":"TIMEOUT","message":"the head of the request came too slowly"}'
)


class Connection(HttpToolsProtocol):
    """Ends when the head of a request takes too long, so that clients cannot hold connections for nothing.

    Lends itself to the LLM proxy for small requests to models.
    """

    quick: House | None = None
    _head_timer: asyncio.TimerHandle | None = None
    _reads = False
    """Whether some of a request has come, but not all."""

    @classmethod
    def lending(cls, house: House) -> type[Connection]:
        """Connections that are lent to this house."""
        return type("Connection", (cls,), {"quick": house})

    def data_received(self, data: bytes) -> None:
        if self.quick is not None and self._rests() and is_quick(data):
            self._head_came()
            self._unset_keepalive_if_required()
            self.connections.discard(self)
            lent = Lent(self.quick, self.loop, self._take_back)
            self.transport.set_protocol(lent)
            lent.connection_made(self.transport)
            lent.data_received(data)
        else:
            super().data_received(data)

    def _rests(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return not self._reads and not self.pipeline and (cycle is None or cycle.response_complete)

    def _take_back(self, data: bytes) -> None:
        self.connections.add(self)
        self.transport.set_protocol(self)
        self._await_head()
        super().data_received(data)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_came()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._reads = True
        self._await_head()

    def on_message_complete(self) -> None:
        self._reads = False
        super().on_message_complete()

    def on_headers_complete(self) -> None:
        self._head_came()
        super().on_headers_complete()

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
            self.transport.write(_TOO_SLOW)
            self.transport.close()


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

    def shutdown(self) -> None:
        # Whoever has taken the socket says goodbye in their own time; a close frame now could fall into one of theirs.
        if not self.taken:
            super().shutdown()

    @property
    def spoke(self) -> bool:
        """Whether anything came after the request that nobody has read."""
        return not self.queue.empty() or bool(self.conn.reader.buffer)
