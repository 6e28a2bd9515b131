"""Ports of boxes on the host's loopback, for clients that speak to a box directly."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from paddock.errors import BoxError, Unavailable
from paddock.model.sandbox import Address

EXECD_PORT = 44772
"""Where execd listens in a container; here it names the box's own daemon."""
CHUNK = 256 * 1024
HANDSHAKE = 10.0


class Forwards:
    """Listens on one loopback port per box and port asked for, each for as long as its box lives."""

    def __init__(self, ports: Iterable[int]) -> None:
        self._free = dict.fromkeys(ports)
        self._listening: dict[tuple[str, int], tuple[int, asyncio.Server]] = {}
        self._lock = asyncio.Lock()

    async def open(self, sandbox_id: str, port: int, address: Address) -> int:
        """The host port that leads to `port` of the box."""
        async with self._lock:
            if (sandbox_id, port) not in self._listening:
                self._listening[sandbox_id, port] = await self._listen(port, address)
            return self._listening[sandbox_id, port][0]

    async def close(self, sandbox_id: str | None = None) -> None:
        """Stop listening for one box, or for all."""
        for key in [key for key in self._listening if sandbox_id in (None, key[0])]:
            host_port, server = self._listening.pop(key)
            server.close()
            self._free[host_port] = None

    async def _listen(self, port: int, address: Address) -> tuple[int, asyncio.Server]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await _relay(reader, writer, port, address)

        for host_port in list(self._free):
            del self._free[host_port]
            try:
                return host_port, await asyncio.start_server(serve, "127.0.0.1", host_port, limit=CHUNK)
            except OSError:
                self._free[host_port] = None  # Somebody else's for now; it goes to the end of the line.
        raise Unavailable("every port of sandboxes.port_range is taken")


async def _relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int, address: Address) -> None:
    try:
        box_reader, box_writer = await asyncio.wait_for(_dial(port, address), HANDSHAKE)
    except (OSError, TimeoutError, BoxError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        writer.transport.abort()
        return
    try:
        await asyncio.gather(_pump(reader, box_writer), _pump(box_reader, writer))
    finally:
        writer.close()
        box_writer.close()


async def _dial(port: int, address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if address.socket is not None:
        reader, writer = await asyncio.open_unix_connection(str(address.socket), limit=CHUNK)
    else:
        reader, writer = await asyncio.open_connection(address.host, address.port, limit=CHUNK)
    try:
        if port != EXECD_PORT:
            await _connect(reader, writer, port, address.token)
    except BaseException:
        writer.transport.abort()
        raise
    return reader, writer


async def _connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int, token: str) -> None:
    request = f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: inside\r\nX-EXECD-ACCESS-TOKEN: {token}\r\n\r\n"
    writer.write(request.encode())
    answer = await reader.readuntil(b"\r\n\r\n")
    if answer.split(b" ", 2)[1:2] != [b"200"]:
        raise BoxError(f"nothing listens on port {port} of the box")


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.transport.abort()
