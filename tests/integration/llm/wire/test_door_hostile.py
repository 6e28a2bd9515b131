"""What the door does for clients that do not behave, or are gone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import socket
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddock.llm.wire.base import HttpRequest, Reply
from paddock.llm.wire.server import Door

from .peers import bound, dialled, door_at, echo, until

pytestmark = pytest.mark.anyio
GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
H = b"POST / HTTP/1.1\r\nhost: x\r\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "door"


async def refusal(path: Path, data: bytes) -> int:
    """The status of the only answer to some bytes, after which the door hangs up."""
    async with dialled(path) as raw:
        await raw.send(data)
        answer = await raw.rest()
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"connection: close" in head and answer.count(b"content-length:") == 1
    error = json.loads(body)
    assert error["type"] == "error" and error["error"]["message"] and error["error"]["type"]
    return int(head[9:12])


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GARBAGE\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\nhost: x\r\n\r\n", 505),
        (b"GET /\r\n\r\n", 505),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: x\r\nhost: x\r\n\r\n", 400),
        (b"GET nowhere HTTP/1.1\r\nhost: x\r\n\r\n", 400),
        (b"GET /a#b HTTP/1.1\r\nhost: x\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\nhost: x\r\n\r\n", 400),
        (b"CONNECT a:1 HTTP/1.1\r\nhost: x\r\n\r\n", 400),
        (b"OPTIONS * HTTP/1.1\r\nhost: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: x\r\nx: a\0b\r\n\r\n", 400),
        (H + b"expect: money\r\ncontent-length: 1\r\n\r\n", 417),
        # What another program might read differently.
        (H + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (H + b"transfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n0\r\n\r\n", 400),
        (H + b"content-length: 3\r\ncontent-length: 3\r\n\r\nabc", 400),
        (H + b"content-length: 3\r\ncontent-length: 4\r\n\r\nabcd", 400),
        (H + b"content-length: 3, 3\r\n\r\nabc", 400),
        (H + b"content-length: +3\r\n\r\nabc", 400),
        (H + b"content-length: 0x3\r\n\r\nabc", 400),
        (H + b"content-length:\r\n\r\n", 400),
        (H + b"content-length: 99999999999999999999\r\n\r\n", 400),
        (H + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400),
        (H + b"transfer-encoding: identity\r\n\r\n", 400),
        (H + b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n", 400),
        (H + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (H + b"transfer-encoding : chunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (H + b"x: a\r\n folded\r\n\r\n", 400),
        (H + b"content-length:\r\n 3\r\n\r\nabc", 400),
        (b"GET / HTTP/1.1\nhost: x\n\n", 400),
        (H + b"x: a\ny: b\r\n\r\n", 400),
        (H + b"x: a\ry: b\r\n\r\n", 400),
        (H + b"transfer-encoding: chunked\r\n\r\n1\na\n0\n\n", 400),
        (H + b"transfer-encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n", 400),
        (H + b"transfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n", 400),
        # Too much.
        (H + b"content-length: 1001\r\n\r\n", 413),
        (H + b"expect: 100-continue\r\ncontent-length: 1001\r\n\r\n", 413),
        (H + b"transfer-encoding: chunked\r\n\r\n" + b"64\r\n" + b"x" * 100 + b"\r\n", 0),
        (H + b"transfer-encoding: chunked\r\n\r\n" + (b"64\r\n" + b"x" * 100 + b"\r\n") * 11, 413),
        (H + b"x: " + b"a" * 70_000, 431),
        (H + b"x: " + b"a" * 70_000 + b"\r\n\r\n", 431),
        (H + b"x: y\r\n" * 12_000 + b"\r\n", 431),
        (H + b"x:\r\n" * 501 + b"\r\n", 431),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n", 431),
        (b"\r\n" * 40_000, 431),
        (H + b"transfer-encoding: chunked\r\n\r\n0\r\nx: " + b"a" * 700_000, 431),
        (H + b"transfer-encoding: chunked\r\n\r\n1;" + b"a" * 700_000, 431),
    ],
    ids=lambda value: repr(value.removeprefix(H)[:40]) if isinstance(value, bytes) else str(value),
)
async def test_what_is_refused(path: Path, data: bytes, status: int) -> None:
    async with door_at(path, echo, max_body=1000):
        if status:
            assert await refusal(path, data) == status
        else:
            async with dialled(path) as raw:
                await raw.send(data + b"0\r\n\r\n")
                assert (await raw.answer())[0] == 200


async def test_a_refusal_comes_after_the_answers_to_what_came_before(path: Path) -> None:
    async with door_at(path, echo), dialled(path) as raw:
        await raw.send(GET + GET + b"GARBAGE\r\n\r\n" + GET)
        assert [await raw.answer(), await raw.answer()] == [(200, b"GET /? ")] * 2
        assert (await raw.answer())[0] == 400
        assert await raw.rest() == b""


async def test_requests_that_come_in_masses_are_not_all_kept(path: Path) -> None:
    async with door_at(path, echo), dialled(path) as raw:
        await raw.send(GET * 1000)
        statuses = [(await raw.answer())[0] for _ in range(101)]
        assert statuses == [200] * 100 + [429]
        assert await raw.rest() == b""


async def test_what_follows_the_last_request_is_not_read(path: Path) -> None:
    async with door_at(path, echo), dialled(path) as raw:
        await raw.send(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n" + GET)
        await raw.send(GET)
        assert (await raw.rest()).count(b"HTTP/1.1 200") == 1


async def test_a_client_that_goes_on_sending_still_learns_that_it_is_too_much(path: Path) -> None:
    async with door_at(path, echo, max_body=1000), dialled(path) as raw:
        await raw.send(H + b"content-length: 30000000\r\n\r\n")
        sending = asyncio.create_task(raw.send(bytes(30_000_000)))
        assert (await raw.answer())[0] == 413
        await sending


async def test_slow_clients_are_sent_away(path: Path) -> None:
    async with door_at(path, echo, header_timeout=0.08, body_timeout=0.08, idle_timeout=0.08) as door:
        for begun in (b"G", b"\r\n", b"GET / HTTP/1.1\r\nx: ", H + b"content-length: 2\r\n\r\nx"):
            assert await refusal(path, begun) == 408
        async with dialled(path) as raw:
            # Some more now and then does not help.
            with contextlib.suppress(ConnectionError):
                for _ in range(15):
                    await raw.send(b"\r\n")
                    await asyncio.sleep(0.01)
            assert b" 408 " in await raw.rest()
        for sent in (b"", GET):
            async with dialled(path) as raw:
                await raw.send(sent)
                assert (await raw.rest()).count(b"HTTP/1.1") == (1 if sent else 0)
        await until(lambda: not door._connections)


async def test_a_body_that_keeps_coming_is_waited_for(path: Path) -> None:
    async with door_at(path, echo, body_timeout=0.1), dialled(path) as raw:
        await raw.send(H + b"content-length: 10\r\n\r\n")
        for _ in range(10):
            await asyncio.sleep(0.02)
            await raw.send(b"x")
        assert await raw.answer() == (200, b"POST /? xxxxxxxxxx")


async def test_a_handler_may_take_its_time(path: Path) -> None:
    async def handler(request: HttpRequest, reply: Reply) -> None:
        await asyncio.sleep(0.15)
        await reply.whole(200, [], b"")

    async with door_at(path, handler, header_timeout=0.04, body_timeout=0.04, idle_timeout=0.04), dialled(path) as raw:
        await raw.send(GET)
        assert (await raw.answer())[0] == 200


@pytest.mark.parametrize("way", ["close", "half-close", "reset"])
async def test_a_client_that_is_gone_cancels_what_it_asked_for(way: str) -> None:
    asked = asyncio.Event()
    cancelled = asyncio.Event()

    async def handler(request: HttpRequest, reply: Reply) -> None:
        asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    door = Door(handler, max_body=100, max_connections=10)
    sock = bound()
    port = sock.getsockname()[1]
    await door.listen(sock)
    async with dialled(port) as raw:
        await raw.send(GET)
        await asked.wait()
        if way == "close":
            raw.writer.close()
        elif way == "half-close":
            raw.writer.write_eof()
        else:
            raw.writer.transport.abort()
        await asyncio.wait_for(cancelled.wait(), 2)
    await until(lambda: not door._connections)
    await door.close(0)


async def test_a_client_that_is_gone_at_once_leaves_nothing(path: Path) -> None:
    async with door_at(path, echo) as door:
        loop = asyncio.get_running_loop()
        for data in (GET, GET * 3, GET[:10], b"", b"GARBAGE\r\n\r\n"):
            with socket.socket(socket.AF_UNIX) as raw:
                raw.setblocking(False)
                await loop.sock_connect(raw, str(path))
                if data:
                    raw.send(data)
        await until(lambda: not door._connections)


async def test_what_is_done_after_the_answer_is_done_to_its_end(path: Path) -> None:
    done = asyncio.Event()
    gone = asyncio.Event()

    async def handler(request: HttpRequest, reply: Reply) -> None:
        await reply.whole(200, [], b"x")
        await gone.wait()
        done.set()

    async with door_at(path, handler) as door:
        async with dialled(path) as raw:
            await raw.send(GET)
            await raw.answer()
        (connection,) = door._connections
        await until(lambda: connection.gone)
        gone.set()
        await asyncio.wait_for(done.wait(), 2)
        await until(lambda: not door._connections)


async def test_a_client_that_does_not_read_is_not_waited_for(path: Path) -> None:
    sent = 0
    cancelled = asyncio.Event()

    async def handler(request: HttpRequest, reply: Reply) -> None:
        nonlocal sent
        try:
            await reply.start(200, [])
            while True:
                await reply.write(bytes(10_000))
                sent += 10_000
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with door_at(path, handler, send_timeout=0.08), dialled(path) as raw:
        raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await raw.send(GET)
        await asyncio.wait_for(cancelled.wait(), 5)
        assert sent < 5_000_000
    async with door_at(path, _large, send_timeout=0.08) as door, dialled(path) as raw:
        raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await raw.send(GET)
        await until(lambda: len(door._connections) == 1)
        await until(lambda: not door._connections)


async def test_a_client_that_neither_speaks_nor_reads_is_not_waited_for(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paddock.llm.wire.inbound.LINGER", 0.05)
    async with door_at(path, _large, send_timeout=0.08) as door, dialled(path) as raw:
        raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await raw.send(GET)
        await until(lambda: any(connection.full for connection in door._connections))
        raw.writer.write_eof()
        await until(lambda: not door._connections)


async def test_there_is_room_for_so_many(path: Path) -> None:
    async with door_at(path, echo, max_connections=2):
        async with dialled(path) as one, dialled(path) as two:
            for raw in (one, two):
                await raw.send(GET)
                assert (await raw.answer())[0] == 200
            assert await refusal(path, GET) == 503
        async with dialled(path) as raw:
            await raw.send(GET)
            assert (await raw.answer())[0] in (200, 503)


async def test_a_flood_of_connections_is_cut(path: Path) -> None:
    async with door_at(path, echo, max_connections=1) as door, contextlib.AsyncExitStack() as stack:
        crowd = [await stack.enter_async_context(dialled(path)) for _ in range(200)]
        await until(lambda: len(door._connections) <= 66)
        for raw in crowd[100:]:
            assert await raw.rest() == b""


async def test_one_listener_cannot_take_the_room_of_another(tmp_path: Path) -> None:
    door = Door(echo, max_body=100, max_connections=10)
    await door.listen_unix(tmp_path / "greedy", max_connections=1)
    await door.listen_unix(tmp_path / "other")
    async with dialled(tmp_path / "greedy"), dialled(tmp_path / "other") as raw:
        assert await refusal(tmp_path / "greedy", GET) == 503
        await raw.send(GET)
        assert (await raw.answer())[0] == 200
    await door.close(0)


async def test_thousands_of_idle_connections_cost_little(path: Path) -> None:
    count = min(10_000, (resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 500) // 2)
    loop = asyncio.get_running_loop()
    async with door_at(path, echo, max_connections=count + 10) as door:
        before = _resident()
        idle = []
        try:
            for _ in range(count):
                raw = socket.socket(socket.AF_UNIX)
                raw.setblocking(False)
                idle.append(raw)
                await loop.sock_connect(raw, str(path))
                raw.send(GET)
                if not len(idle) % 500:
                    # No more may wait to be let in than the system allows.
                    await until(lambda: len(door._connections) == len(idle))
            await until(lambda: len(door._connections) == count)
            async with dialled(path) as last:
                await last.send(GET)
                assert (await last.answer())[0] == 200
            assert (_resident() - before) / count < 8192
        finally:
            for raw in idle:
                raw.close()
        await until(lambda: not door._connections)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.binary(max_size=200), begin=st.sampled_from([b"", GET[:20], H, H + b"transfer-encoding: chunked\r\n\r\n"])
)
def test_no_bytes_break_the_door(tmp_path_factory: pytest.TempPathFactory, data: bytes, begin: bytes) -> None:
    async def run() -> None:
        path = tmp_path_factory.mktemp("door") / "d"
        async with door_at(path, echo, idle_timeout=5) as door:
            async with dialled(path) as raw:
                await raw.send(begin + data)
                raw.writer.write_eof()
                with contextlib.suppress(ConnectionError):
                    await raw.rest()
            await until(lambda: not door._connections)
            async with dialled(path) as raw:
                await raw.send(GET)
                assert (await raw.answer())[0] == 200

    asyncio.run(run())


@pytest.mark.parametrize("cuts", ["halves", "bytes"])
async def test_requests_are_the_same_wherever_the_bytes_are_cut(path: Path, cuts: str) -> None:
    data = (
        b"POST /a?b=c HTTP/1.1\r\nHost: x\r\nX-Long: a b\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"3\r\nabc\r\n0a;e=1\r\n0123456789\r\n0\r\nt: x\r\n\r\n"
        b"PUT / HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nxyz"
    )
    async with door_at(path, echo) as door:
        for cut in range(1, len(data)) if cuts == "halves" else [0]:
            pieces = [data[:cut], data[cut:]] if cuts == "halves" else [bytes([byte]) for byte in data]
            async with dialled(path) as raw:
                await until(lambda: len(door._connections) == 1)
                (connection,) = door._connections
                for piece in pieces:
                    # Handed over directly: a socket would join them again.
                    connection.data_received(piece)
                assert await raw.answer() == (200, b"POST /a?b=c abc0123456789"), cut
                assert await raw.answer() == (200, b"PUT /? xyz"), cut
            await until(lambda: not door._connections)


async def _large(request: HttpRequest, reply: Reply) -> None:
    await reply.whole(200, [], bytes(10_000_000))


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
