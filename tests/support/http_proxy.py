"""An HTTP proxy on loopback: CONNECT and absolute-form requests, credentials, and refusals."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field


@dataclass
class HttpProxy:
    """A running proxy. It leads every target to this machine: to the target's port, or as `routes` says."""

    credentials: str | None = None
    """`USER:PASSWORD` that requests must have."""
    refusal: bytes | None = None
    """Send just these bytes to every request, and close."""
    silent: bool = False
    """Never answer a request."""
    head: bytes = b"HTTP/1.1 200 Connection established\r\nvia: test\r\n\r\n"
    """Answer to CONNECT; with what follows the empty line, it is sent byte by byte."""
    routes: dict[str, int] = field(default_factory=dict)
    """Port on this machine by `HOST:PORT` of the target."""
    port: int = 0
    requests: list[str] = field(default_factory=list)
    """First lines of all requests."""
    heads: list[str] = field(default_factory=list)
    open: int = 0
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url_with_credentials(self) -> str:
        return f"http://{self.credentials}@127.0.0.1:{self.port}"

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[HttpProxy]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await server.wait_closed()

    def close_connections(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.open += 1
        try:
            await self._serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError, ssl.SSLError):
            pass
        finally:
            self.open -= 1
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            self.requests.append(head.partition("\r\n")[0])
            self.heads.append(head)
            if self.silent:
                await reader.read()
                return
            if self.refusal is not None:
                writer.write(self.refusal)
                return
            if self.credentials is not None:
                wanted = base64.b64encode(self.credentials.encode()).decode()
                if f"proxy-authorization: basic {wanted}".lower() not in head.lower():
                    writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")
                    return
            method, target, _ = head.split(" ", 2)
            if method == "CONNECT":
                await self._tunnel(target, reader, writer)
                return
            await self._forward(head, target, reader, writer)

    async def _open(
        self, target: str, writer: asyncio.StreamWriter
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        port = self.routes.get(target, int(target.rpartition(":")[2]))
        try:
            return await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n")
            raise ConnectionError from None

    async def _tunnel(self, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, upstream = await self._open(target, writer)
        try:
            for byte in self.head:
                writer.write(bytes([byte]))
                await writer.drain()
            await asyncio.gather(_copy(reader, upstream), _copy(there, writer))
        finally:
            upstream.close()

    async def _forward(
        self, head: str, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Forward one request, without the header for the proxy, and its whole response."""
        found = re.fullmatch(r"http://([^/]+)(/.*)", target)
        assert found, target
        authority = found[1] if ":" in found[1] else f"{found[1]}:80"
        there, upstream = await self._open(authority, writer)
        try:
            lines = [line for line in head.split("\r\n") if not line.lower().startswith("proxy-authorization:")]
            upstream.write("\r\n".join(lines).replace(target, found[2], 1).encode("latin-1"))
            length = re.search(r"content-length: (\d+)", head, re.IGNORECASE)
            upstream.write(await reader.readexactly(int(length[1]) if length else 0))
            answer = await there.readuntil(b"\r\n\r\n")
            writer.write(answer)
            size = re.search(rb"content-length: (\d+)", answer, re.IGNORECASE)
            if size:
                writer.write(await there.readexactly(int(size[1])))
                return
            while piece := await there.read(65536):
                writer.write(piece)
                await writer.drain()
                if piece.endswith(b"0\r\n\r\n"):
                    return
        finally:
            upstream.close()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(65536):
        sink.write(data)
        await sink.drain()
    if sink.can_write_eof():
        sink.write_eof()
