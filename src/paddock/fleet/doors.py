"""HTTP for the programs of one box, on the socket of one of its holes."""

from __future__ import annotations

import asyncio
import logging
import socket
from abc import ABC, abstractmethod

from aiohttp import web

CONNECTIONS = 64
"""That one box may have open at a time."""
CLOSED_WITHIN = 0.1
"""Seconds that handlers have to end once the door is closed."""


class Door(ABC):
    """Serves one hole of one box, whose programs may send anything."""

    def __init__(self, name: str, *, unpack: bool = True) -> None:
        # Who hangs up is not worked for any longer.
        self._server = web.Server(
            self._serve,
            handler_cancellation=True,
            access_log=None,
            auto_decompress=unpack,
            # What is no HTTP is a box's own affair, and would fill the server's log.
            logger=logging.Logger(name, logging.CRITICAL),
        )
        self._listener: asyncio.Server | None = None

    async def listen(self, bound: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_unix_server(self._accept, sock=bound)

    async def close(self) -> None:
        """Serve no longer, and end every connection."""
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._server.connections):
            connection.force_close()
        # With 0 it would wait for ever for a connection that a box keeps open.
        await self._server.shutdown(CLOSED_WITHIN)

    @abstractmethod
    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""

    def _accept(self) -> asyncio.Protocol:
        return self._server() if len(self._server.connections) < CONNECTIONS else _Full()


class _Full(asyncio.Protocol):
    """Turns away what is too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
