"""The HTTP server with well-behaved clients."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import stat
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from paddock.llm.wire.base import HttpRequest, ResponseWriter, UpstreamTimeouts
from paddock.llm.wire.http_client import HttpClient, UpstreamAddress
from paddock.llm.wire.http_server import HttpServer

from .raw_http_peers import bound, connect_raw, echo, server_at, until

pytestmark = pytest.mark.anyio
GET = b"GET /a?b=c HTTP/1.1\r\nhost: x\r\n\r\n"
POST = b"POST /p HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nhi"
CHUNKED = b"POST /p HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\nh\r\n1\r\ni\r\n0\r\n\r\n"


async def pieces(request: HttpRequest, reply: ResponseWriter) -> None:
    await reply.start(200, [(b"content-type", b"text/event-stream"), (b"content-length", b"7")])
    for piece in (b"one", b"", b"two"):
        await reply.write(piece)
    await reply.end()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "http_server"


async def test_handler_receives_requests_unchanged(path: Path) -> None:
    seen: list[HttpRequest] = []

    async def handler(request: HttpRequest, reply: ResponseWriter) -> None:
        seen.append(request)
        await reply.send(200, [], b"")

    async with server_at(path, handler, tag="box-1"), connect_raw(path) as raw:
        await raw.send(b"POST /v1/%61?q=%20&r HTTP/1.1\r\nHost: x\r\nX-Key: A b \r\nContent-Length: 2\r\n\r\nhi")
        assert await raw.answer() == (200, b"")
        await raw.send(b"GET http://proxied/p?q HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await raw.answer() == (200, b"")
    first, second = seen
    assert (first.method, first.path, first.query, first.body) == ("POST", "/v1/%61", "q=%20&r", b"hi")
    assert first.headers == [(b"host", b"x"), (b"x-key", b"A b"), (b"content-length", b"2")]
    assert (first.tag, first.header(b"x-key")) == ("box-1", b"A b")
    assert (second.path, second.query) == ("/p", "q")


async def test_whole_and_streamed_responses(path: Path) -> None:
    async with server_at(path, echo), connect_raw(path) as raw:
        await raw.send(POST)
        expected = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 11\r\n\r\nPOST /p? hi"
        assert await raw.reader.readexactly(len(expected)) == expected
        await raw.send(CHUNKED)
        assert await raw.answer() == (200, b"POST /p? hi")
    async with server_at(path, pieces), connect_raw(path) as raw:
        expected = (
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"
        )
        for _ in range(2):
            await raw.send(GET)
            assert await raw.reader.readexactly(len(expected)) == expected


async def test_stream_head_is_sent_before_body(path: Path) -> None:
    go = asyncio.Event()

    async def handler(request: HttpRequest, reply: ResponseWriter) -> None:
        await reply.start(200, [])
        await go.wait()
        await reply.end()

    async with server_at(path, handler), connect_raw(path) as raw:
        await raw.send(GET)
        assert (await raw.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")
        go.set()
        assert await raw.reader.readexactly(5) == b"0\r\n\r\n"


async def test_head_has_no_body(path: Path) -> None:
    head = GET.replace(b"GET", b"HEAD")
    async with server_at(path, echo), connect_raw(path) as raw:
        await raw.send(head + GET)
        assert b"content-length: 12\r\n" in await raw.reader.readuntil(b"\r\n\r\n")
        assert await raw.answer() == (200, b"GET /a?b=c ")
    async with server_at(path, pieces), connect_raw(path) as raw:
        await raw.send(head + GET)
        await raw.reader.readuntil(b"\r\n\r\n")
        assert await raw.answer() == (200, b"onetwo")


async def test_responses_without_bodies(path: Path) -> None:
    async def handler(request: HttpRequest, reply: ResponseWriter) -> None:
        await reply.send(204, [], b"")

    async with server_at(path, handler), connect_raw(path) as raw:
        await raw.send(GET + GET)
        for _ in range(2):
            assert await raw.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 204 No Content\r\n\r\n"


@pytest.mark.parametrize(
    ("request_bytes", "stays"),
    [
        (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", True),
        (b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n", True),
    ],
)
async def test_keep_alive(path: Path, request_bytes: bytes, stays: bool) -> None:
    async with server_at(path, echo), connect_raw(path) as raw:
        await raw.send(request_bytes)
        if stays:
            assert await raw.answer() == (200, b"GET /? ")
            await raw.send(request_bytes)
            assert await raw.answer() == (200, b"GET /? ")
        else:
            answer = await raw.rest()
            assert answer.endswith(b"\r\n\r\nGET /? ") and b"connection: close" in answer


async def test_http_1_0_stream_ends_with_the_connection(path: Path) -> None:
    async with server_at(path, pieces), connect_raw(path) as raw:
        await raw.send(b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n")
        head, _, body = (await raw.rest()).partition(b"\r\n\r\n")
        assert body == b"onetwo"
        assert b"chunked" not in head and b"connection: close" in head


async def test_pipelined_requests_are_answered_in_order(path: Path) -> None:
    running = 0

    async def handler(request: HttpRequest, reply: ResponseWriter) -> None:
        nonlocal running
        running += 1
        assert running == 1
        await asyncio.sleep(0.001)
        await reply.send(200, [], request.path.encode())
        running -= 1

    many = [b"GET /%d HTTP/1.1\r\nhost: x\r\n\r\n" % number for number in range(50)]
    async with server_at(path, handler), connect_raw(path) as raw:
        await raw.send(b"".join(many[:25]))
        await raw.send(b"".join(many[25:]))
        for number in range(50):
            assert await raw.answer() == (200, b"/%d" % number)


async def test_pipelined_bytes_are_bounded(path: Path) -> None:
    go = asyncio.Event()

    async def handler(request: HttpRequest, reply: ResponseWriter) -> None:
        await go.wait()
        await reply.send(200, [], b"%d" % len(request.body))

    big = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n" + bytes(100_000)
    async with server_at(path, handler) as http_server, connect_raw(path) as raw:
        await raw.send(GET)
        sending = asyncio.create_task(raw.send(big * 50))
        await asyncio.sleep(0.05)
        (connection,) = http_server._connections
        assert len(connection._waiting or b"") < 2**20
        go.set()
        assert await raw.answer() == (200, b"0")
        for _ in range(50):
            assert await raw.answer() == (200, b"100000")
        await sending


async def test_expect_100_continue(path: Path) -> None:
    head = b"POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n"
    async with server_at(path, echo), connect_raw(path) as raw:
        await raw.send(GET + head)
        assert await raw.answer() == (200, b"GET /a?b=c ")
        for _ in range(2):
            assert await raw.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            await raw.send(b"hi")
            assert await raw.answer() == (200, b"POST /? hi")
            await raw.send(head)
        await raw.reader.readuntil(b"\r\n\r\n")
        await raw.send(b"hi")
        assert await raw.answer() == (200, b"POST /? hi")
        await raw.send(head + b"hi")
        assert await raw.answer() == (200, b"POST /? hi")


async def test_upgrade_offers_are_ignored(path: Path) -> None:
    offer = b"connection: upgrade\r\nupgrade: %b\r\n"
    async with server_at(path, echo):
        async with connect_raw(path) as raw:
            await raw.send(b"GET /ws HTTP/1.1\r\nhost: x\r\n" + offer % b"websocket" + b"\r\n\x81\x00\x81")
            assert (await raw.rest()).endswith(b"connection: close\r\ncontent-length: 9\r\n\r\nGET /ws? ")
        for body in (b"content-length: 2\r\n\r\nhi", b"transfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"):
            request = b"PUT /h2 HTTP/1.1\r\nhost: x\r\n" + offer % b"h2c" + body
            for cut in range(1, len(request)):
                async with connect_raw(path) as raw:
                    await raw.send(request[:cut])
                    await asyncio.sleep(0)
                    await raw.send(request[cut:])
                    assert await raw.answer() == (200, b"PUT /h2? hi"), cut


async def test_body_of_fifty_megabytes_is_accepted(path: Path) -> None:
    async def handler(request: HttpRequest, reply: ResponseWriter) -> None:
        await reply.send(200, [], request.body)

    body = bytes(range(250)) * 200_000
    async with server_at(path, handler, max_body=len(body)), connect_raw(path) as raw:
        sending = asyncio.create_task(raw.send(POST.replace(b": 2\r\n\r\nhi", b": %d\r\n\r\n" % len(body)) + body))
        status, got = await raw.answer()
        await sending
        assert status == 200 and got == body


async def test_failing_handler_is_answered_with_500(path: Path) -> None:
    async def handler(request: HttpRequest, reply: ResponseWriter) -> None:
        if request.path == "/late":
            await reply.start(200, [])
            await reply.write(b"some")
        if request.path != "/silent":
            raise RuntimeError("a secret")

    with capture_logs() as logs:
        async with server_at(path, handler):
            async with connect_raw(path) as raw:
                await raw.send(GET + GET)
                for _ in range(2):
                    status, body = await raw.answer()
                    assert status == 500 and b"secret" not in body
                    assert json.loads(body)["error"]["type"] == "api_error"
            for target, sent in ((b"/late", b"some"), (b"/silent", b"")):
                async with connect_raw(path) as raw:
                    await raw.send(GET.replace(b"/a?b=c", target))
                    got = await raw.rest()
                    assert sent in got and b"0\r\n\r\n" not in got
    assert [line["event"] for line in logs] == ["request handler failed"] * 3 + ["handler left response unfinished"]


async def test_response_splitting_is_refused(path: Path) -> None:
    async def handler(request: HttpRequest, reply: ResponseWriter) -> None:
        await reply.send(200, [(b"x", b"a\r\n\r\nHTTP/1.1 200 OK")], b"")

    with capture_logs():
        async with server_at(path, handler), connect_raw(path) as raw:
            await raw.send(GET)
            assert (await raw.answer())[0] == 500


async def test_request_is_answered_once(path: Path) -> None:
    errors: list[str] = []

    async def handler(request: HttpRequest, reply: ResponseWriter) -> None:
        for attempt in (reply.write(b"x"), reply.end()):
            with contextlib.suppress(RuntimeError):
                await attempt
                errors.append("written before its start")
        await reply.send(200, [], b"x")
        await reply.end()
        for attempt in (reply.send(200, [], b"y"), reply.start(200, []), reply.write(b"z")):
            with contextlib.suppress(RuntimeError):
                await attempt
                errors.append("written after its end")

    async with server_at(path, handler), connect_raw(path) as raw:
        await raw.send(GET + GET)
        assert [await raw.answer(), await raw.answer()] == [(200, b"x")] * 2
    assert errors == []


async def test_aborted_response_resets_tcp_connection() -> None:
    async def handler(request: HttpRequest, reply: ResponseWriter) -> None:
        await reply.start(200, [])
        await reply.write(b"some")
        await asyncio.sleep(0.01)
        reply.abort()
        reply.abort()

    http_server = HttpServer(handler, max_body=100, max_connections=10)
    sock = bound()
    port = sock.getsockname()[1]
    await http_server.listen(sock)
    for version in (b"1.0", b"1.1"):
        async with connect_raw(port) as raw:
            await raw.send(GET.replace(b"1.1", version))
            with pytest.raises(ConnectionResetError):
                await raw.rest()
    await http_server.close(0)


async def test_server_and_client_work_together() -> None:
    http_server = HttpServer(pieces, max_body=100, max_connections=10)
    sock = bound()
    origin = UpstreamAddress.parse(f"http://127.0.0.1:{sock.getsockname()[1]}")
    await http_server.listen(sock)
    client = HttpClient()
    for _ in range(3):
        answer = await client.send(origin, "POST", b"/", [], b"{}", UpstreamTimeouts())
        assert await answer.read() == b"onetwo"
    assert len(http_server._connections) == 1
    (connection,) = http_server._connections
    assert connection._transport is not None
    raw = connection._transport.get_extra_info("socket")
    assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    await client.close()
    await http_server.close(0)


async def test_unix_socket_is_private_and_replaces_a_stale_one(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(path))
    async with server_at(path, echo), connect_raw(path) as raw:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        await raw.send(GET)
        assert (await raw.answer())[0] == 200


async def test_listeners_open_and_close_independently(tmp_path: Path) -> None:
    async def handler(request: HttpRequest, reply: ResponseWriter) -> None:
        await reply.send(200, [], (request.tag or "").encode())

    http_server = HttpServer(handler, max_body=100, max_connections=10)
    one = await http_server.listen_unix(tmp_path / "one", tag="one")
    await http_server.listen_unix(tmp_path / "two", tag="two")
    async with connect_raw(tmp_path / "one") as first, connect_raw(tmp_path / "two") as second:
        await first.send(GET)
        assert await first.answer() == (200, b"one")
        await one.close()
        await one.close()
        assert await first.rest() == b""
        assert not (tmp_path / "one").exists()
        await second.send(GET)
        assert await second.answer() == (200, b"two")
        again = await http_server.listen_unix(tmp_path / "one", tag="again")
        async with connect_raw(tmp_path / "one") as third:
            await third.send(GET)
            assert await third.answer() == (200, b"again")
            await until(lambda: again.connections == 1)
    await http_server.close(1)
    assert list(tmp_path.iterdir()) == []


async def test_closing_waits_for_active_requests(path: Path) -> None:
    go = asyncio.Event()

    async def handler(request: HttpRequest, reply: ResponseWriter) -> None:
        await reply.start(200, [])
        await go.wait()
        await reply.end()

    http_server = HttpServer(handler, max_body=100, max_connections=10)
    await http_server.listen_unix(path)
    async with connect_raw(path) as busy, connect_raw(path) as idle:
        await busy.send(GET)
        await busy.reader.readuntil(b"\r\n\r\n")
        closing = asyncio.create_task(http_server.close(5))
        assert await idle.rest() == b""
        with pytest.raises((FileNotFoundError, ConnectionRefusedError)):
            await asyncio.open_unix_connection(path)
        go.set()
        assert await busy.rest() == b"0\r\n\r\n"
        await closing


async def test_closing_cancels_after_the_grace_period(path: Path) -> None:
    ended: list[str] = []

    async def handler(request: HttpRequest, reply: ResponseWriter) -> None:
        try:
            await reply.start(200, [])
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            ended.append("cleaned up")

    http_server = HttpServer(handler, max_body=100, max_connections=10)
    await http_server.listen_unix(path)
    async with connect_raw(path) as raw:
        await raw.send(GET)
        await raw.reader.readuntil(b"\r\n\r\n")
        await http_server.close(0.02)
        assert ended == ["cleaned up"]
        assert await raw.rest() == b""
    await http_server.close(0)
