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

ClientScript = Callable[[asyncio.StreamReader, asyncio.StreamWriter, LimitedHttpProtocol], Awaitable[None]]


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


def run_conversation(run_client: ClientScript) -> None:
    """Run a client script against one connection."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        config = uvicorn.Config(answer_empty, lifespan="off", log_config=None, access_log=False)
        config.load()
        connection = LimitedHttpProtocol(config, ServerState(), {}, loop)
        server = await loop.create_server(lambda: connection, "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            try:
                await run_client(reader, writer, connection)
            finally:
                writer.close()
                connection.transport.abort()

    with asyncio.Runner(loop_factory=FakeClockLoop) as runner:
        runner.run(main())


async def start_head(writer: asyncio.StreamWriter, connection: LimitedHttpProtocol) -> None:
    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n")
    while not connection._receiving:
        await asyncio.sleep(0.001)


def advance_clock(seconds: float, connection: LimitedHttpProtocol, *, timer_is_late: bool) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, FakeClockLoop) and connection._head_timer is not None
    if timer_is_late:
        connection._head_timer.cancel()
    loop.ahead += seconds


@pytest.mark.parametrize("timer_is_late", [False, True])
def test_late_rest_of_request_head_is_refused(timer_is_late: bool) -> None:
    async def run_client(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: LimitedHttpProtocol
    ) -> None:
        await start_head(writer, connection)
        advance_clock(HEAD_TIMEOUT + 1, connection, timer_is_late=timer_is_late)
        writer.write(b"\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 408 ")

    run_conversation(run_client)


def test_each_request_head_has_its_own_timeout() -> None:
    async def run_client(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: LimitedHttpProtocol
    ) -> None:
        for _ in range(2):
            await start_head(writer, connection)
            advance_clock(HEAD_TIMEOUT - 1, connection, timer_is_late=False)
            writer.write(b"\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204 ")

    run_conversation(run_client)


async def advance_and_run_timers(seconds: float) -> None:
    """Advance the clock and run due timers."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, FakeClockLoop)
    loop.ahead += seconds
    await asyncio.sleep(0.01)


async def start_body(writer: asyncio.StreamWriter, connection: LimitedHttpProtocol, path: str = "/") -> None:
    writer.write(f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n{{".encode())
    while connection._body_timer is None:
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("drip", [0, 1, MIN_BODY_PROGRESS // 2])
def test_stalled_bodies_are_refused(drip: int) -> None:
    async def run_client(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: LimitedHttpProtocol
    ) -> None:
        await start_body(writer, connection)
        writer.write(b"a" * drip)
        await asyncio.sleep(0.01)
        await advance_and_run_timers(BODY_INTERVAL + 1)
        assert (await reader.readline()).startswith(b"HTTP/1.1 408 ")

    run_conversation(run_client)


@pytest.mark.parametrize(("path", "progress"), [("/", MIN_BODY_PROGRESS), ("/proxied", 0)])
def test_progressing_bodies_and_sandbox_bodies_have_no_timeout(path: str, progress: int) -> None:
    async def run_client(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: LimitedHttpProtocol
    ) -> None:
        await start_body(writer, connection, path)
        for _ in range(5):
            writer.write(b"a" * progress)
            await asyncio.sleep(0.01)
            await advance_and_run_timers(BODY_INTERVAL + 1)
        writer.write(b"a" * (100_000 - 1 - 5 * progress))
        assert (await reader.readline()).startswith(b"HTTP/1.1 204 ")

    run_conversation(run_client)


def test_body_not_read_by_server_has_no_timeout() -> None:
    async def run_client(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: LimitedHttpProtocol
    ) -> None:
        await start_body(writer, connection)
        connection.flow.hold()
        await advance_and_run_timers(BODY_INTERVAL + 1)
        connection.flow.release()
        await advance_and_run_timers(BODY_INTERVAL - 1)
        writer.write(b"a" * 99_999)
        assert (await reader.readline()).startswith(b"HTTP/1.1 204 ")

    run_conversation(run_client)
