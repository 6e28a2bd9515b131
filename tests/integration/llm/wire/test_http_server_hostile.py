"""The HTTP server with hostile clients and clients that disconnect."""

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

from paddock.llm.wire.base import HttpRequest, ResponseWriter
from paddock.llm.wire.http_server import HttpServer
from paddock.llm.wire.memory_budget import MemoryBudget
from paddock.llm.wire.request_parser import HttpRequestRefusal

from .raw_http_peers import bound, connect_raw, echo, server_at, until

pytestmark = pytest.mark.anyio
GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
H = b"POST / HTTP/1.1\r\nhost: x\r\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "http_server"


async def refusal(path: Path, data: bytes) -> int:
    """The status of the only answer to some bytes, after which the server hangs up."""
    async with connect_raw(path) as raw:
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
async def test_invalid_requests_are_refused(path: Path, data: bytes, status: int) -> None:
    async with server_at(path, echo, max_body=1000):
        if status:
            assert await refusal(path, data) == status
        else:
            async with connect_raw(path) as raw:
                await raw.send(data + b"0\r\n\r\n")
                assert (await raw.answer())[0] == 200


async def test_refusal_comes_after_earlier_responses(path: Path) -> None:
    async with server_at(path, echo), connect_raw(path) as raw:
        await raw.send(GET + GET + b"GARBAGE\r\n\r\n" + GET)
        assert [await raw.answer(), await raw.answer()] == [(200, b"GET /? ")] * 2
        assert (await raw.answer())[0] == 400
        assert await raw.rest() == b""


async def test_pipelined_requests_are_bounded(path: Path) -> None:
    async with server_at(path, echo), connect_raw(path) as raw:
        await raw.send(GET * 1000)
        statuses = [(await raw.answer())[0] for _ in range(101)]
        assert statuses == [200] * 100 + [429]
        assert await raw.rest() == b""


async def test_bytes_after_the_last_request_are_ignored(path: Path) -> None:
    async with server_at(path, echo), connect_raw(path) as raw:
        await raw.send(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n" + GET)
        await raw.send(GET)
        assert (await raw.rest()).count(b"HTTP/1.1 200") == 1


async def test_refusal_reaches_client_still_sending_its_body(path: Path) -> None:
    async with server_at(path, echo, max_body=1000), connect_raw(path) as raw:
        await raw.send(H + b"content-length: 30000000\r\n\r\n")
        sending = asyncio.create_task(raw.send(bytes(30_000_000)))
        assert (await raw.answer())[0] == 413
        await sending


async def test_slow_clients_time_out(path: Path) -> None:
    async with server_at(path, echo, header_timeout=0.08, body_timeout=0.08, idle_timeout=0.08) as http_server:
        for partial_request in (b"G", b"\r\n", b"GET / HTTP/1.1\r\nx: ", H + b"content-length: 2\r\n\r\nx"):
            assert await refusal(path, partial_request) == 408
        async with connect_raw(path) as raw:
            # Some more now and then does not help.
            with contextlib.suppress(ConnectionError):
                for _ in range(15):
                    await raw.send(b"\r\n")
                    await asyncio.sleep(0.01)
            assert b" 408 " in await raw.rest()
        for sent in (b"", GET):
            async with connect_raw(path) as raw:
                await raw.send(sent)
                assert (await raw.rest()).count(b"HTTP/1.1") == (1 if sent else 0)
        await until(lambda: not http_server._connections)


async def test_steady_body_does_not_time_out(path: Path) -> None:
    async with server_at(path, echo, body_timeout=0.1), connect_raw(path) as raw:
        await raw.send(H + b"content-length: 20480\r\n\r\n")
        for _ in range(10):
            await asyncio.sleep(0.02)
            await raw.send(b"x" * 2048)
        assert await raw.answer() == (200, b"POST /? " + b"x" * 20480)


@pytest.mark.parametrize("piece", [b"x", b"1\r\nx\r\n"], ids=["with a length", "in chunks"])
async def test_dripping_body_times_out(path: Path, piece: bytes) -> None:
    framing = b"transfer-encoding: chunked" if len(piece) > 1 else b"content-length: 2000"
    async with server_at(path, echo, body_timeout=0.1), connect_raw(path) as raw:
        await raw.send(H + framing + b"\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            for _ in range(30):
                await raw.send(piece)
                await asyncio.sleep(0.01)
        assert b" 408 " in await raw.rest()


async def admit_by_header(request: HttpRequest) -> MemoryBudget:
    await asyncio.sleep(0.01)
    if request.header(b"x-key") is None:
        raise HttpRequestRefusal(401, "no key", b"{}")
    return MemoryBudget(int(request.header(b"x-key") or 0))


LARGE_BODY = b"x" * 200_000
LARGE_BODY_FRAMINGS = {
    "with a length": (b"content-length: 200000\r\n\r\n", LARGE_BODY),
    "in chunks": (b"transfer-encoding: chunked\r\n\r\n", b"30d40\r\n" + LARGE_BODY + b"\r\n0\r\n\r\n"),
}


@pytest.mark.parametrize("framing", LARGE_BODY_FRAMINGS)
@pytest.mark.parametrize("first", [b"", GET], ids=["alone", "pipelined"])
async def test_caller_of_a_large_body_is_identified_by_its_head(path: Path, framing: str, first: bytes) -> None:
    head, body = LARGE_BODY_FRAMINGS[framing]
    async with server_at(path, echo, admit_body=admit_by_header, listener_memory=0):
        for key, status in ((b"", 401), (b"x-key: 1000000\r\n", 200), (b"x-key: 1000\r\n", 503)):
            for pieces in ([first + H + key + head, body], [first + H + key + head + body[:9000], body[9000:]]):
                async with connect_raw(path) as raw:
                    with contextlib.suppress(ConnectionError):
                        for piece in pieces:
                            await raw.send(piece)
                            await asyncio.sleep(0.005)
                    if first:
                        assert (await raw.answer())[0] == 200
                    assert await raw.answer() == (status, b"POST /? " + LARGE_BODY) or status != 200


async def test_refused_caller_of_a_large_body_is_not_asked_to_continue(path: Path) -> None:
    head = H + b"expect: 100-continue\r\ncontent-length: 200000\r\n"
    async with server_at(path, echo, admit_body=admit_by_header):
        async with connect_raw(path) as raw:
            await raw.send(head + b"\r\n")
            assert (await raw.answer())[0] == 401
        async with connect_raw(path) as raw:
            await raw.send(head + b"x-key: 1000000\r\n\r\n")
            assert (await raw.answer())[0] == 100
            await raw.send(LARGE_BODY)
            assert (await raw.answer())[0] == 200


async def test_small_bodies_need_no_identification(path: Path) -> None:
    async with server_at(path, echo, admit_body=admit_by_header), connect_raw(path) as raw:
        await raw.send(H + b"content-length: 2\r\n\r\nxx")
        assert await raw.answer() == (200, b"POST /? xx")


async def test_client_that_disconnects_while_it_is_identified_leaves_nothing_behind(path: Path) -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def admit(request: HttpRequest) -> MemoryBudget:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError

    async with server_at(path, echo, admit_body=admit) as http_server, connect_raw(path) as raw:
        await raw.send(H + b"content-length: 200000\r\n\r\n")
        await started.wait()
        for connection in list(http_server._connections):
            connection.abort()
        await asyncio.wait_for(cancelled.wait(), 2)
        await until(lambda: not http_server._connections)


async def test_slow_handler_is_not_cancelled(path: Path) -> None:
    async def handler(request: HttpRequest, reply: ResponseWriter) -> None:
        await asyncio.sleep(0.15)
        await reply.send(200, [], b"")

    async with (
        server_at(path, handler, header_timeout=0.04, body_timeout=0.04, idle_timeout=0.04),
        connect_raw(path) as raw,
    ):
        await raw.send(GET)
        assert (await raw.answer())[0] == 200


@pytest.mark.parametrize("way", ["close", "half-close", "reset"])
async def test_disconnect_cancels_the_handler(way: str) -> None:
    request_received = asyncio.Event()
    cancelled = asyncio.Event()

    async def handler(request: HttpRequest, reply: ResponseWriter) -> None:
        request_received.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    http_server = HttpServer(handler, max_body=100, max_connections=10)
    sock = bound()
    port = sock.getsockname()[1]
    await http_server.listen(sock)
    async with connect_raw(port) as raw:
        await raw.send(GET)
        await request_received.wait()
        if way == "close":
            raw.writer.close()
        elif way == "half-close":
            raw.writer.write_eof()
        else:
            raw.writer.transport.abort()
        await asyncio.wait_for(cancelled.wait(), 2)
    await until(lambda: not http_server._connections)
    await http_server.close(0)


async def test_immediate_disconnect_leaves_nothing_behind(path: Path) -> None:
    async with server_at(path, echo) as http_server:
        loop = asyncio.get_running_loop()
        for data in (GET, GET * 3, GET[:10], b"", b"GARBAGE\r\n\r\n"):
            with socket.socket(socket.AF_UNIX) as raw:
                raw.setblocking(False)
                await loop.sock_connect(raw, str(path))
                if data:
                    raw.send(data)
        await until(lambda: not http_server._connections)


async def test_handler_finishes_its_work_after_the_response(path: Path) -> None:
    done = asyncio.Event()
    gone = asyncio.Event()

    async def handler(request: HttpRequest, reply: ResponseWriter) -> None:
        await reply.send(200, [], b"x")
        await gone.wait()
        done.set()

    async with server_at(path, handler) as http_server:
        async with connect_raw(path) as raw:
            await raw.send(GET)
            await raw.answer()
        (connection,) = http_server._connections
        await until(lambda: connection.client_gone)
        gone.set()
        await asyncio.wait_for(done.wait(), 2)
        await until(lambda: not http_server._connections)


async def test_non_reading_client_is_disconnected(path: Path) -> None:
    sent = 0
    cancelled = asyncio.Event()

    async def handler(request: HttpRequest, reply: ResponseWriter) -> None:
        nonlocal sent
        try:
            await reply.start(200, [])
            while True:
                await reply.write(bytes(10_000))
                sent += 10_000
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with server_at(path, handler, send_timeout=0.08), connect_raw(path) as raw:
        raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await raw.send(GET)
        await asyncio.wait_for(cancelled.wait(), 5)
        assert sent < 5_000_000
    async with server_at(path, _large, send_timeout=0.08) as http_server, connect_raw(path) as raw:
        raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await raw.send(GET)
        await until(lambda: len(http_server._connections) == 1)
        await until(lambda: not http_server._connections)


async def test_refused_non_reading_client_is_disconnected(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.llm.wire.http_server_connection.LINGER_SECONDS", 0.05)
    async with server_at(path, _large, send_timeout=0.08) as http_server, connect_raw(path) as raw:
        raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await raw.send(GET)
        await until(lambda: any(connection.backed_up for connection in http_server._connections))
        raw.writer.write_eof()
        await until(lambda: not http_server._connections)


async def test_connection_limit(path: Path) -> None:
    async with server_at(path, echo, max_connections=2):
        async with connect_raw(path) as one, connect_raw(path) as two:
            for raw in (one, two):
                await raw.send(GET)
                assert (await raw.answer())[0] == 200
            assert await refusal(path, GET) == 503
        async with connect_raw(path) as raw:
            await raw.send(GET)
            assert (await raw.answer())[0] in (200, 503)


async def test_connections_above_the_limit_are_dropped(path: Path) -> None:
    async with server_at(path, echo, max_connections=1) as http_server, contextlib.AsyncExitStack() as stack:
        crowd = [await stack.enter_async_context(connect_raw(path)) for _ in range(200)]
        await until(lambda: len(http_server._connections) <= 66)
        for raw in crowd[100:]:
            assert await raw.rest() == b""


async def test_listeners_have_separate_connection_limits(tmp_path: Path) -> None:
    http_server = HttpServer(echo, max_body=100, max_connections=10)
    await http_server.listen_unix(tmp_path / "greedy", max_connections=1)
    await http_server.listen_unix(tmp_path / "other")
    async with connect_raw(tmp_path / "greedy"), connect_raw(tmp_path / "other") as raw:
        assert await refusal(tmp_path / "greedy", GET) == 503
        await raw.send(GET)
        assert (await raw.answer())[0] == 200
    await http_server.close(0)


async def test_thousands_of_idle_connections_cost_little(path: Path) -> None:
    count = min(10_000, (resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 500) // 2)
    loop = asyncio.get_running_loop()
    async with server_at(path, echo, max_connections=count + 10) as http_server:
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
                    await until(lambda: len(http_server._connections) == len(idle))
            await until(lambda: len(http_server._connections) == count)
            async with connect_raw(path) as last:
                await last.send(GET)
                assert (await last.answer())[0] == 200
            assert (_resident() - before) / count < 8192
        finally:
            for raw in idle:
                raw.close()
        await until(lambda: not http_server._connections)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.binary(max_size=200), begin=st.sampled_from([b"", GET[:20], H, H + b"transfer-encoding: chunked\r\n\r\n"])
)
def test_arbitrary_bytes_do_not_break_the_server(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, begin: bytes
) -> None:
    async def run() -> None:
        path = tmp_path_factory.mktemp("http_server") / "d"
        async with server_at(path, echo, idle_timeout=5) as http_server:
            async with connect_raw(path) as raw:
                await raw.send(begin + data)
                raw.writer.write_eof()
                with contextlib.suppress(ConnectionError):
                    await raw.rest()
            await until(lambda: not http_server._connections)
            async with connect_raw(path) as raw:
                await raw.send(GET)
                assert (await raw.answer())[0] == 200

    asyncio.run(run())


@pytest.mark.parametrize("cuts", ["halves", "bytes"])
async def test_requests_are_parsed_from_any_pieces(path: Path, cuts: str) -> None:
    data = (
        b"POST /a?b=c HTTP/1.1\r\nHost: x\r\nX-Long: a b\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"3\r\nabc\r\n0a;e=1\r\n0123456789\r\n0\r\nt: x\r\n\r\n"
        b"PUT / HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nxyz"
    )
    async with server_at(path, echo) as http_server:
        for cut in range(1, len(data)) if cuts == "halves" else [0]:
            pieces = [data[:cut], data[cut:]] if cuts == "halves" else [bytes([byte]) for byte in data]
            async with connect_raw(path) as raw:
                await until(lambda: len(http_server._connections) == 1)
                (connection,) = http_server._connections
                for piece in pieces:
                    # Handed over directly: a socket would join them again.
                    connection.data_received(piece)
                assert await raw.answer() == (200, b"POST /a?b=c abc0123456789"), cut
                assert await raw.answer() == (200, b"PUT /? xyz"), cut
            await until(lambda: not http_server._connections)


async def _large(request: HttpRequest, reply: ResponseWriter) -> None:
    await reply.send(200, [], bytes(10_000_000))


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
