"""Connections of the main port: uvicorn's, but they do not wait for ever for a request to begin."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_WITHIN = 20.0
"""Seconds from the first byte of a request, or from the connection, to the end of its headers."""
_TOO_SLOW = (
    b"HTTP/1.1 408 Request Timeout\r\ncontent-type: application/json\r\ncontent-length: 70\r\nconnection: close\r\n\r\n"
    b'{"code":"TIMEOUT","message":"the head of the request came too slowly"}'
)


class Connection(HttpToolsProtocol):
    """Ends when the head of a request takes too long, so that clients cannot hold connections for nothing."""

    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_came()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._await_head()

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
