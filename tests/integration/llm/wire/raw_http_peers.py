"""Test peers at byte level: upstreams with scripted responses, and clients that send raw bytes."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from paddock.llm.wire.base import Handler, HttpRequest, ResponseWriter
from paddock.llm.wire.http_server import HttpServer

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def until(condition: Callable[[], bool], timeout: float = 5.0) -> None:
    async with asyncio.timeout(timeout):
        while not condition():
            await asyncio.sleep(0.002)


async def read_request(reader: asyncio.StreamReader) -> bytes:
    """Read one request with its body."""
    head = await reader.readuntil(b"\r\n\r\n")
    found = re.search(rb"content-length: (\d+)", head)
    return head + (await reader.readexactly(int(found[1])) if found else b"")


class Upstream:
    """A server of raw bytes on loopback."""

    def __init__(self, serve: Serve) -> None:
        self.connections = 0
        self.requests: list[bytes] = []
        self.lost = 0
        self.port = 0
        self._serve = serve
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            self.lost += 1
        except asyncio.CancelledError:
            # The test is over; asyncio's own streams would log it as an error.
            pass
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    @contextlib.asynccontextmanager
    async def serving(self, context: ssl.SSLContext | None = None) -> AsyncIterator[Upstream]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=context)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await server.wait_closed()


def answering(*answers: bytes, close: bool = False) -> Upstream:
    """Return an upstream with one response per request, the last one repeated; `close` ends each connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            upstream.requests.append(await read_request(reader))
            writer.write(answers[min(len(upstream.requests), len(answers)) - 1])
            await writer.drain()
            if close:
                return

    upstream = Upstream(serve)
    return upstream


class RawClient:
    """A client that sends and reads bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> tuple[int, bytes]:
        """The status and the body of the next answer; the body must have a length or chunks."""
        async with asyncio.timeout(5):
            head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
            status = int(head[9:12])
            if found := re.search(rb"\r\ncontent-length: (\d+)", head):
                return status, await self.reader.readexactly(int(found[1]))
            if b"\r\ntransfer-encoding: chunked" not in head:
                return status, b""
            body = b""
            while size := int(await self.reader.readuntil(b"\r\n"), 16):
                body += (await self.reader.readexactly(size + 2))[:-2]
            assert await self.reader.readexactly(2) == b"\r\n"
            return status, body

    async def rest(self) -> bytes:
        """Everything until the http_server hangs up."""
        async with asyncio.timeout(5):
            return await self.reader.read()


@contextlib.asynccontextmanager
async def connect_raw(where: Path | int) -> AsyncIterator[RawClient]:
    if isinstance(where, Path):
        reader, writer = await asyncio.open_unix_connection(where, limit=2**26)
    else:
        reader, writer = await asyncio.open_connection("127.0.0.1", where, limit=2**26)
    try:
        yield RawClient(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def bound() -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.bind(("127.0.0.1", 0))
    return sock


@contextlib.asynccontextmanager
async def server_at(
    path: Path, handler: Handler, *, tag: str | None = None, **limits: Any
) -> AsyncIterator[HttpServer]:
    """A http_server at a Unix socket, of which nothing may be left afterwards."""
    before = asyncio.all_tasks()
    http_server = HttpServer(handler, **{"max_body": 2**20, "max_connections": 100, **limits})
    await http_server.listen_unix(path, tag=tag)
    try:
        yield http_server
    finally:
        await http_server.close(0)
        assert asyncio.all_tasks() <= before
        assert not path.exists()


async def echo(request: HttpRequest, reply: ResponseWriter) -> None:
    """Echo the request."""
    line = f"{request.method} {request.path}?{request.query} ".encode()
    await reply.send(200, [(b"content-type", b"text/plain")], line + request.body)
