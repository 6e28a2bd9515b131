"""Slow request headers and bodies time out, headers even if timers are late."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from paddock.api.http.outer_middleware import PROXIED_SCOPE_KEY
from paddock.api.http.uvicorn_protocols import BODY_INTERVAL, HEAD_TIMEOUT, MIN_BODY_PROGRESS, LimitedHttpProtocol

Speak = Callable[[asyncio.StreamReader, asyncio.StreamWriter, LimitedHttpProtocol], Awaitable[None]]


class FakeClockLoop(asyncio.SelectorEventLoop):
    """An event loop with an adjustable clock."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


async def answer_empty(scope: Any, receive: Any, send: Any) -> None:
    scope[PROXIED_SCOPE_KEY] = scope["path"] == "/proxied"
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def converse(speak: Speak) -> None:
    """Have a client speak to one connection."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        config = uvicorn.Config(answer_empty, lifespan="off", log_config=None, access_log=False)
        config.load()
        connection = LimitedHttpProtocol(config, ServerState(), {}, loop)
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


async def head_begun(writer: asyncio.StreamWriter, connection: LimitedHttpProtocol) -> None:
    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n")
    while not connection._receiving:
        await asyncio.sleep(0.001)


def put_forward(seconds: float, connection: LimitedHttpProtocol, *, timer_is_late: bool) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, FakeClockLoop) and connection._head_timer is not None
    if timer_is_late:
        connection._head_timer.cancel()
    loop.ahead += seconds


@pytest.mark.parametrize("timer_is_late", [False, True])
def test_late_rest_of_a_head_is_refused(timer_is_late: bool) -> None:
    async def speak(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: LimitedHttpProtocol
    ) -> None:
        await head_begun(writer, connection)
        put_forward(HEAD_TIMEOUT + 1, connection, timer_is_late=timer_is_late)
        writer.write(b"\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 408 ")

    converse(speak)


def test_a_head_in_time_is_answered_and_the_next_one_has_its_own_time() -> None:
    async def speak(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: LimitedHttpProtocol
    ) -> None:
        for _ in range(2):
            await head_begun(writer, connection)
            put_forward(HEAD_TIMEOUT - 1, connection, timer_is_late=False)
            writer.write(b"\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204 ")

    converse(speak)


async def pass_seconds(seconds: float) -> None:
    """Put the clock forward and let the timers run."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, FakeClockLoop)
    loop.ahead += seconds
    await asyncio.sleep(0.01)


async def start_body(writer: asyncio.StreamWriter, connection: LimitedHttpProtocol, path: str = "/") -> None:
    writer.write(f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n{{".encode())
    while connection._body_timer is None:
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("drip", [0, 1, MIN_BODY_PROGRESS // 2])
def test_bodies_that_stall_are_refused(drip: int) -> None:
    async def speak(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: LimitedHttpProtocol
    ) -> None:
        await start_body(writer, connection)
        writer.write(b"a" * drip)
        await asyncio.sleep(0.01)
        await pass_seconds(BODY_INTERVAL + 1)
        assert (await reader.readline()).startswith(b"HTTP/1.1 408 ")

    converse(speak)


@pytest.mark.parametrize(("path", "progress"), [("/", MIN_BODY_PROGRESS), ("/proxied", 0)])
def test_bodies_that_go_on_and_those_for_sandboxes_have_any_time(path: str, progress: int) -> None:
    async def speak(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: LimitedHttpProtocol
    ) -> None:
        await start_body(writer, connection, path)
        for _ in range(5):
            writer.write(b"a" * progress)
            await asyncio.sleep(0.01)
            await pass_seconds(BODY_INTERVAL + 1)
        writer.write(b"a" * (100_000 - 1 - 5 * progress))
        assert (await reader.readline()).startswith(b"HTTP/1.1 204 ")

    converse(speak)


def test_a_body_that_the_server_does_not_read_has_any_time() -> None:
    async def speak(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: LimitedHttpProtocol
    ) -> None:
        await start_body(writer, connection)
        connection.flow.hold()
        await pass_seconds(BODY_INTERVAL + 1)
        connection.flow.release()
        await pass_seconds(BODY_INTERVAL - 1)
        writer.write(b"a" * 99_999)
        assert (await reader.readline()).startswith(b"HTTP/1.1 204 ")

    converse(speak)
