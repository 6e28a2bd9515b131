"""HTTP server for the programs of one sandbox, on the socket of an uplink service."""

from __future__ import annotations

import asyncio
import logging
import socket
from abc import ABC, abstractmethod

from aiohttp import web

MAX_CONNECTIONS = 64
"""Concurrent connections of one sandbox."""
CLOSE_TIMEOUT = 0.1
"""Seconds in which handlers must end after `close`."""


class UplinkHttpServer(ABC):
    """Serves one uplink service to the untrusted programs of one sandbox."""

    def __init__(self, name: str, *, decompress: bool = True) -> None:
        # Stop handling a request when its client disconnects.
        self._server = web.Server(
            self._serve,
            handler_cancellation=True,
            access_log=None,
            auto_decompress=decompress,
            # Invalid HTTP from a sandbox would fill the server's log.
            logger=logging.Logger(name, logging.CRITICAL),
        )
        self._listener: asyncio.Server | None = None

    async def listen(self, bound: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_unix_server(self._accept, sock=bound)

    async def close(self) -> None:
        """Stop serving and close all connections."""
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._server.connections):
            connection.force_close()
        # With 0, aiohttp would wait forever for connections that a sandbox keeps open.
        await self._server.shutdown(CLOSE_TIMEOUT)

    @abstractmethod
    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""

    def _accept(self) -> asyncio.Protocol:
        return self._server() if len(self._server.connections) < MAX_CONNECTIONS else _RejectConnection()


class _RejectConnection(asyncio.Protocol):
    """Closes connections above the limit."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
