"""A fake provider on a real socket with planned responses.

It writes raw bytes, so that it can do what no well-behaved server does: break off, stall, send garbage.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class ReceivedRequest:
    """A request that the fake provider received."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for known, value in self.headers if known.lower() == name), None)

    @property
    def document(self) -> Any:
        return json.loads(self.body)


@dataclass
class PlannedResponse:
    """A response for the fake provider to send. Chunks are written one by one, so that each arrives alone."""

    status: int = 200
    headers: Sequence[tuple[str, str]] = ()
    pieces: Sequence[bytes] = (b"{}",)
    content_type: str = "application/json"
    chunked: bool = False
    pause: float = 0.0
    """Seconds between pieces."""
    before: float = 0.0
    """Seconds until the head is sent."""
    hold: float = 0.0
    """Seconds to stay silent after the last piece, before the end."""
    cut: bool = False
    """Abort the connection instead of ending the response."""
    raw: bytes | None = None
    """Send just these bytes and close."""


def json_response(document: Any, status: int = 200, **more: Any) -> PlannedResponse:
    return PlannedResponse(status=status, pieces=[json.dumps(document).encode()], **more)


def sse_response(pieces: Sequence[bytes], **more: Any) -> PlannedResponse:
    return PlannedResponse(pieces=pieces, content_type="text/event-stream", chunked=True, **more)


@dataclass
class FakeProvider:
    """The running server. `script` returns the response to each request."""

    script: Callable[[ReceivedRequest], PlannedResponse]
    url: str = ""
    received: list[ReceivedRequest] = field(default_factory=list)
    disconnects: int = 0
    """Number of clients that disconnected before their response was complete."""
    open: int = 0

    def respond_in_sequence(self, *responses: PlannedResponse) -> None:
        """Send these responses one after the other, then repeat the last one."""
        remaining = list(responses)
        self.script = lambda _: remaining.pop(0) if len(remaining) > 1 else remaining[0]

    def always_respond(self, response: PlannedResponse) -> None:
        self.script = lambda _: response

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            while await self._serve_request(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open -= 1
            writer.close()

    async def _serve_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        request = await _read_request(reader)
        if request is None:
            return False
        self.received.append(request)
        response = self.script(request)
        disconnected = asyncio.create_task(reader.read(1))
        writing = asyncio.create_task(_write_response(response, writer))
        try:
            await asyncio.wait((disconnected, writing), return_when=asyncio.FIRST_COMPLETED)
            if not writing.done():
                self.disconnects += 1
                return False
            return writing.result() and not disconnected.done()
        finally:
            for task in (disconnected, writing):
                task.cancel()
            await asyncio.gather(disconnected, writing, return_exceptions=True)


async def _read_request(reader: asyncio.StreamReader) -> ReceivedRequest | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    method, target, _ = first.split(" ")
    headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    length = next((int(value) for name, value in headers if name.lower() == "content-length"), 0)
    return ReceivedRequest(method, target, headers, await reader.readexactly(length))


async def _write_response(response: PlannedResponse, writer: asyncio.StreamWriter) -> bool:
    """Return whether the connection can be reused."""
    if response.before:
        await asyncio.sleep(response.before)
    if response.raw is not None:
        writer.write(response.raw)
        await writer.drain()
        return False
    head = [f"HTTP/1.1 {response.status} Whatever", f"content-type: {response.content_type}"]
    head += [f"{name}: {value}" for name, value in response.headers]
    length = sum(map(len, response.pieces))
    head.append("transfer-encoding: chunked" if response.chunked else f"content-length: {length}")
    writer.write("\r\n".join([*head, "", ""]).encode())
    for piece in response.pieces:
        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece) if response.chunked else piece)
        await writer.drain()
        await asyncio.sleep(response.pause)
    if response.hold:
        await asyncio.sleep(response.hold)
    if response.cut:
        writer.transport.abort()
        return False
    if response.chunked:
        writer.write(b"0\r\n\r\n")
    await writer.drain()
    return True


@contextmanager
def run_fake_provider(
    script: Callable[[ReceivedRequest], PlannedResponse] | None = None, tls: ssl.SSLContext | None = None
) -> Iterator[FakeProvider]:
    """Run a fake provider in a thread of its own."""
    server = FakeProvider(script or (lambda _: json_response({})))
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def run() -> None:
        tasks: set[asyncio.Task[None]] = set()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            await server.serve(reader, writer)

        listener = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls, limit=2**26)
        port = listener.sockets[0].getsockname()[1]
        server.url = f"{'https' if tls else 'http'}://{'localhost' if tls else '127.0.0.1'}:{port}"
        ready.set()
        await stop.wait()
        listener.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),), daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()
