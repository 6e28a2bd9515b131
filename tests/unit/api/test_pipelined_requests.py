"""Pipelined requests are parsed one ahead, and answered in order however they are cut into pieces."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvicorn
import uvloop
from uvicorn.server import ServerState

from paddock.api.http.uvicorn_protocols import LimitedHttpProtocol

REQUESTS = (
    ("GET", b"", b""),
    ("POST", b"content-length: 20\r\n", b"ab\r\n\r\nGET / HTTP/1.1"),
    ("POST", b"transfer-encoding: chunked\r\n", b"5\r\n\r\n\r\na\r\n6\r\n\r\nGET \r\n0\r\n\r\n"),
    ("GET", b"x: " + b"a" * 20_000 + b"\r\n", b""),
    ("POST", b"content-length: 300000\r\n", b"\r\n\r\n" * 75_000),
    ("POST", b"transfer-encoding: chunked\r\n", b"1\r\na\r\n" * 40_000 + b"0\r\n\r\n"),
)
SIZES = (0, 20, 11, 0, 300_000, 40_000)


async def describe_request(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the number of the request, its method, and the size of its body."""
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    text = f"{scope['path']} {scope['method']} {size}\n".encode()
    headers = [(b"content-length", b"%d" % len(text))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": text})


def converse(
    app: Any, speak: Callable[[asyncio.StreamReader, asyncio.StreamWriter, list[LimitedHttpProtocol]], Awaitable[None]]
) -> None:
    """Have a client speak to a server of `LimitedHttpProtocol`s."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        config = uvicorn.Config(app, lifespan="off", log_config=None, access_log=False)
        config.load()
        made: list[LimitedHttpProtocol] = []

        def connect() -> LimitedHttpProtocol:
            made.append(LimitedHttpProtocol(config, ServerState(), {}, loop))
            return made[-1]

        async with await loop.create_server(connect, "127.0.0.1", 0) as server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            try:
                await speak(reader, writer, made)
            finally:
                writer.close()
                made[0].transport.abort()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(main(), 30))


@pytest.mark.parametrize("seed", range(4))
def test_pipelined_requests_are_answered_in_order(seed: int) -> None:
    chance = random.Random(seed)
    chosen = [chance.randrange(len(REQUESTS)) for _ in range(30)]
    stream = b"".join(
        b"%b /%d HTTP/1.1\r\nhost: a\r\n%b\r\n%b" % (REQUESTS[which][0].encode(), number, *REQUESTS[which][1:])
        for number, which in enumerate(chosen)
    )

    async def speak(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, made: list[LimitedHttpProtocol]
    ) -> None:
        async def write() -> None:
            at = 0
            while at < len(stream):
                size = chance.choice((1, 7, 100, 16_384, 300_000))
                writer.write(stream[at : at + size])
                at += size
                if chance.random() < 0.5:
                    await writer.drain()
                    await asyncio.sleep(0.001)

        writing = asyncio.create_task(write())
        for number, which in enumerate(chosen):
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 "), head
            method, size = REQUESTS[which][0], SIZES[which]
            assert await reader.readline() == f"/{number} {method} {size}\n".encode()
        await writing

    converse(describe_request, speak)


def test_reading_pauses_after_one_pipelined_request_parsed_ahead() -> None:
    async def never_answer(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await asyncio.Event().wait()

    async def speak(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, made: list[LimitedHttpProtocol]
    ) -> None:
        writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n" * 500_000)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(writer.drain(), 1)
        assert len(made[0].pipeline) == 1
        assert len(made[0]._unparsed) < 2**19

    converse(never_answer, speak)
