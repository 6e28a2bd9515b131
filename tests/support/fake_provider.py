"""A fake provider on a real socket with planned answers.

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
    """A request as it came in."""

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
class PlannedAnswer:
    """A planned answer. Chunks are written one by one, so that each arrives alone."""

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
    """Break the connection instead of ending the answer."""
    raw: bytes | None = None
    """Send just these bytes and close."""


def whole(document: Any, status: int = 200, **more: Any) -> PlannedAnswer:
    return PlannedAnswer(status=status, pieces=[json.dumps(document).encode()], **more)


def events(pieces: Sequence[bytes], **more: Any) -> PlannedAnswer:
    return PlannedAnswer(pieces=pieces, content_type="text/event-stream", chunked=True, **more)


@dataclass
class FakeProvider:
    """The running server. `script` is given each request and says what to answer."""

    script: Callable[[ReceivedRequest], PlannedAnswer]
    url: str = ""
    received: list[ReceivedRequest] = field(default_factory=list)
    hung_up: int = 0
    """How often a client went away before its answer was complete."""
    open: int = 0

    def answer_in_turn(self, *answers: PlannedAnswer) -> None:
        """Answer so, one after the other; the last one over and over."""
        waiting = list(answers)
        self.script = lambda _: waiting.pop(0) if len(waiting) > 1 else waiting[0]

    def always(self, answer: PlannedAnswer) -> None:
        self.script = lambda _: answer

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open -= 1
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        request = await _read(reader)
        if request is None:
            return False
        self.received.append(request)
        answer = self.script(request)
        gone = asyncio.create_task(reader.read(1))
        speaking = asyncio.create_task(_speak(answer, writer))
        try:
            await asyncio.wait((gone, speaking), return_when=asyncio.FIRST_COMPLETED)
            if not speaking.done():
                self.hung_up += 1
                return False
            return speaking.result() and not gone.done()
        finally:
            for task in (gone, speaking):
                task.cancel()
            await asyncio.gather(gone, speaking, return_exceptions=True)


async def _read(reader: asyncio.StreamReader) -> ReceivedRequest | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    method, target, _ = first.split(" ")
    headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    length = next((int(value) for name, value in headers if name.lower() == "content-length"), 0)
    return ReceivedRequest(method, target, headers, await reader.readexactly(length))


async def _speak(answer: PlannedAnswer, writer: asyncio.StreamWriter) -> bool:
    """Return whether the connection can be reused."""
    if answer.before:
        await asyncio.sleep(answer.before)
    if answer.raw is not None:
        writer.write(answer.raw)
        await writer.drain()
        return False
    head = [f"HTTP/1.1 {answer.status} Whatever", f"content-type: {answer.content_type}"]
    head += [f"{name}: {value}" for name, value in answer.headers]
    length = sum(map(len, answer.pieces))
    head.append("transfer-encoding: chunked" if answer.chunked else f"content-length: {length}")
    writer.write("\r\n".join([*head, "", ""]).encode())
    for piece in answer.pieces:
        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece) if answer.chunked else piece)
        await writer.drain()
        await asyncio.sleep(answer.pause)
    if answer.hold:
        await asyncio.sleep(answer.hold)
    if answer.cut:
        writer.transport.abort()
        return False
    if answer.chunked:
        writer.write(b"0\r\n\r\n")
    await writer.drain()
    return True


@contextmanager
def upstream(
    script: Callable[[ReceivedRequest], PlannedAnswer] | None = None, tls: ssl.SSLContext | None = None
) -> Iterator[FakeProvider]:
    """A server in a thread of its own."""
    server = FakeProvider(script or (lambda _: whole({})))
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
