"""Slow request headers time out, even if timers are late."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from paddock.api.http.uvicorn_protocols import HEAD_TIMEOUT, HttpConnection

Speak = Callable[[asyncio.StreamReader, asyncio.StreamWriter, HttpConnection], Awaitable[None]]


class FakeClockLoop(asyncio.SelectorEventLoop):
    """An event loop with an adjustable clock."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


async def answer_empty(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def converse(speak: Speak) -> None:
    """Have a client speak to one connection."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        config = uvicorn.Config(answer_empty, lifespan="off", log_config=None, access_log=False)
        config.load()
        connection = HttpConnection(config, ServerState(), {}, loop)
        server = await loop.create_server(lambda: connection, "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            try:
                await speak(reader, writer, connection)
            finally:
                writer.close()
                connection.transport.abort()

    with asyncio.Runner(loop_factory=FakeClockLoop) as runner:
        runner.run(main())


async def head_begun(writer: asyncio.StreamWriter, connection: HttpConnection) -> None:
    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n")
    while not connection._receiving:
        await asyncio.sleep(0.001)


def put_forward(seconds: float, connection: HttpConnection, *, timer_is_late: bool) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, FakeClockLoop) and connection._head_timer is not None
    if timer_is_late:
        connection._head_timer.cancel()
    loop.ahead += seconds


@pytest.mark.parametrize("timer_is_late", [False, True])
def test_late_rest_of_a_head_is_refused(timer_is_late: bool) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: HttpConnection) -> None:
        await head_begun(writer, connection)
        put_forward(HEAD_TIMEOUT + 1, connection, timer_is_late=timer_is_late)
        writer.write(b"\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 408 ")

    converse(speak)


def test_a_head_in_time_is_answered_and_the_next_one_has_its_own_time() -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: HttpConnection) -> None:
        for _ in range(2):
            await head_begun(writer, connection)
            put_forward(HEAD_TIMEOUT - 1, connection, timer_is_late=False)
            writer.write(b"\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204 ")

    converse(speak)
