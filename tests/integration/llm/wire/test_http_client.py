"""The HTTP client with valid and broken responses."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from paddock.llm.wire.base import Headers, UpstreamBroken, UpstreamTimedOut, UpstreamTimeouts, UpstreamUnreachable
from paddock.llm.wire.http_client import HttpClient, HttpClientResponse, UpstreamAddress
from paddock.llm.wire.http_client_connection import HttpClientConnection
from paddock.llm.wire.http_client_response import HIGH_WATER_BYTES

from .raw_http_peers import Upstream, answering, read_request, until

pytestmark = pytest.mark.anyio
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
QUICK = UpstreamTimeouts(connect=2.0, first_byte=0.05, stall=0.05)


@contextlib.asynccontextmanager
async def client_of(**settings: Any) -> AsyncIterator[HttpClient]:
    """A client of which nothing may be left afterwards."""
    before = asyncio.all_tasks()
    client = HttpClient(**settings)
    try:
        yield client
    finally:
        await client.close()
        assert not client._connections and not any(client._idle.values())
        await until(lambda: asyncio.all_tasks() <= before)


async def ask(
    client: HttpClient,
    upstream: Upstream,
    *,
    method: str = "POST",
    target: bytes = b"/v1/chat?x=1",
    headers: Headers | None = None,
    body: bytes = b"{}",
    timeouts: UpstreamTimeouts | None = None,
    prefix: str = "",
) -> HttpClientResponse:
    origin = UpstreamAddress.parse(upstream.url + prefix)
    return await client.send(origin, method, target, headers or [], body, timeouts or UpstreamTimeouts(connect=2.0))


async def test_request_is_sent_correctly() -> None:
    async with answering(OK).serving() as upstream, client_of() as client:
        given = [(b"authorization", b"Bearer k"), (b"host", b"evil"), (b"content-length", b"99"), (b"te", b"x")]
        answer = await ask(client, upstream, headers=given, prefix="/base/")
        assert (answer.status, answer.headers, await answer.read()) == (200, [(b"content-length", b"2")], b"ok")
        assert upstream.requests == [
            b"POST /base/v1/chat?x=1 HTTP/1.1\r\n"
            + f"host: 127.0.0.1:{upstream.port}\r\n".encode()
            + b"authorization: Bearer k\r\ncontent-length: 2\r\n\r\n{}"
        ]


@pytest.mark.parametrize("header", [b"a\r\nx: y", b"a\nx: y", b"a\rb", b"a\0b"])
async def test_header_injection_is_refused(header: bytes) -> None:
    async with answering(OK).serving() as upstream, client_of() as client:
        with pytest.raises(ValueError, match="does not allow"):
            await ask(client, upstream, headers=[(b"x-secret", header)])
        for target in (b"/a b", b"a", b"/a HTTP/1.1\r\nx: y"):
            with pytest.raises(ValueError, match=r"."):
                await ask(client, upstream, target=target)
        assert upstream.connections == 0


async def test_connection_is_reused_but_not_by_parallel_requests() -> None:
    async with answering(OK).serving() as upstream, client_of() as client:
        for _ in range(5):
            assert await (await ask(client, upstream)).read() == b"ok"
        assert upstream.connections == 1
        answers = await asyncio.gather(*(ask(client, upstream) for _ in range(3)))
        assert [await answer.read() for answer in answers] == [b"ok"] * 3
        assert upstream.connections == 3


@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        (b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n", 304, b""),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nlink: x\r\n\r\n" + OK, 200, b"ok"),
        (CHUNKED + b"3;ext=1\r\nabc\r\n2\r\nde\r\n0\r\nx-trailer: 1\r\n\r\n", 200, b"abcde"),
        (b"HTTP/1.1 529 Overloaded\r\ncontent-length: 1\r\n\r\nx", 529, b"x"),
    ],
    ids=["204", "304", "1xx", "chunked", "529"],
)
async def test_delimited_responses_keep_the_connection(answer: bytes, status: int, body: bytes) -> None:
    async with answering(answer).serving() as upstream, client_of() as client:
        for _ in range(2):
            got = await ask(client, upstream)
            assert (got.status, await got.read(), await got.read_piece()) == (status, body, b"")
            assert all(name not in (b"link", b"x-trailer") for name, _ in got.headers)
            got.close()
        assert upstream.connections == 1


async def test_response_to_head_has_no_body() -> None:
    async with answering(b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n").serving() as upstream, client_of() as client:
        for _ in range(2):
            answer = await ask(client, upstream, method="HEAD", body=b"")
            assert (answer.status, await answer.read()) == (200, b"")
        assert b"content-length" not in upstream.requests[0]


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.0 200 OK\r\nconnection: close\r\n\r\n"])
async def test_response_without_length_ends_with_its_connection(head: bytes) -> None:
    async with answering(head + b"all of it", close=True).serving() as upstream, client_of() as client:
        assert await (await ask(client, upstream)).read() == b"all of it"
        assert await (await ask(client, upstream)).read() == b"all of it"
        assert upstream.connections == 2


@pytest.mark.parametrize(
    "answer",
    [CHUNKED + b"3\r\nabc\r\n", CHUNKED + b"3\r\nabc", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc"],
    ids=["no last chunk", "inside a chunk", "short of its length"],
)
async def test_truncated_response_is_an_error(answer: bytes) -> None:
    async with answering(answer, close=True).serving() as upstream, client_of() as client:
        with pytest.raises(UpstreamBroken, match="before the answer did"):
            await (await ask(client, upstream)).read()
        streamed = await ask(client, upstream)
        assert await streamed.read_piece() == b"abc"
        with pytest.raises(UpstreamBroken):
            await streamed.read_piece()
        with pytest.raises(UpstreamBroken):
            await streamed.read_piece()


@pytest.mark.parametrize(
    "answer",
    [
        b"<html>hello</html>",
        b"\x15\x03\x01\x00\x02\x02\x16",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nx: " + b"a" * 70_000 + b"\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000 + b"content-length: 0\r\n\r\n",
        b"HTTP/1.1 103 Early\r\nx: y\r\n\r\n" * 10_000,
    ],
    ids="html tls status switch both-lengths two-lengths long-header many-headers endless-1xx".split(),
)
async def test_invalid_response_is_an_error(answer: bytes) -> None:
    async with answering(answer).serving() as upstream, client_of() as client:
        with pytest.raises(UpstreamBroken) as caught:
            await ask(client, upstream, headers=[(b"authorization", b"Bearer sk-1")], target=b"/?key=sk-1")
        assert caught.value.retryable
        assert "sk-1" not in str(caught.value)


async def test_malformed_chunks_and_endless_trailers_are_errors() -> None:
    for rest in (b"zz\r\n", b"0\r\nx: " + b"a" * 400_000, b"1;" + b"e" * 400_000):
        async with answering(CHUNKED + b"2\r\nok\r\n" + rest).serving() as upstream, client_of() as client:
            answer = await ask(client, upstream)
            with pytest.raises(UpstreamBroken):
                await answer.read()


async def test_unsolicited_second_response_is_discarded() -> None:
    forged = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged"
    async with answering(OK + forged).serving() as upstream, client_of() as client:
        for _ in range(3):
            assert await (await ask(client, upstream)).read() == b"ok"
        assert upstream.connections == 3


async def test_unreachable_upstream_is_an_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        origin = UpstreamAddress.parse(f"http://127.0.0.1:{taken.getsockname()[1]}")
        async with client_of() as client:
            with pytest.raises(UpstreamUnreachable, match="refused"):
                await client.send(origin, "GET", b"/", [], b"", UpstreamTimeouts())
            with pytest.raises(UpstreamUnreachable, match="host name is unknown"):
                await client.send(
                    UpstreamAddress.parse("http://no-such-name.invalid"), "GET", b"/", [], b"", UpstreamTimeouts()
                )


async def test_connect_timeout() -> None:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(4):
            # A full accept queue lets no further connection in.
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(server.getsockname())
        origin = UpstreamAddress.parse(f"http://127.0.0.1:{server.getsockname()[1]}")
        async with client_of() as client:
            with pytest.raises(UpstreamUnreachable, match=r"within 0\.05 seconds"):
                await client.send(origin, "GET", b"/", [], b"", UpstreamTimeouts(connect=0.05))


async def test_first_byte_and_stall_timeouts() -> None:
    async with answering(b"").serving() as upstream, client_of() as client:
        with pytest.raises(UpstreamTimedOut, match="did not begin"):
            await ask(client, upstream, timeouts=QUICK)
        await until(lambda: upstream.lost == 1)
    async with answering(CHUNKED + b"2\r\nok\r\n").serving() as upstream, client_of() as client:
        answer = await ask(client, upstream, timeouts=QUICK)
        assert await answer.read_piece() == b"ok"
        with pytest.raises(UpstreamTimedOut, match="paused"):
            await answer.read_piece()
        with pytest.raises(UpstreamTimedOut, match="paused"):
            await (await ask(client, upstream, timeouts=QUICK)).read()


async def test_slow_head_times_out() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        while True:
            writer.write(b"HTTP/1.1 103 Early Hints\r\n\r\n")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with Upstream(serve).serving() as upstream, client_of() as client:
        with pytest.raises(UpstreamTimedOut, match="did not begin"):
            await ask(client, upstream, timeouts=QUICK)


async def test_steady_pieces_do_not_time_out() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(CHUNKED)
        for _ in range(10):
            writer.write(b"1\r\nx\r\n")
            await asyncio.sleep(0.02)
        writer.write(b"0\r\n\r\n")

    async with Upstream(serve).serving() as upstream, client_of() as client:
        answer = await ask(client, upstream, timeouts=UpstreamTimeouts(first_byte=0.1, stall=0.1))
        assert await answer.read() == b"x" * 10


async def test_cancelled_read_can_be_repeated() -> None:
    go = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(CHUNKED)
        await go.wait()
        writer.write(b"2\r\nok\r\n0\r\n\r\n")

    async with Upstream(serve).serving() as upstream, client_of() as client:
        answer = await ask(client, upstream)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(answer.read_piece(), 0.01)
        go.set()
        assert (await answer.read_piece(), await answer.read_piece()) == (b"ok", b"")


async def test_dead_idle_connection_is_replaced_silently() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream.requests.append(await read_request(reader))
        writer.write(OK)
        await writer.drain()
        if upstream.connections == 1:
            # Read the second request without a word, as if it had crossed with the end of the connection.
            await read_request(reader)
            return
        await reader.read()

    async with Upstream(serve).serving() as upstream, client_of() as client:
        for _ in range(2):
            assert await (await ask(client, upstream)).read() == b"ok"
        assert (upstream.connections, len(upstream.requests)) == (2, 2)


async def test_request_on_failed_new_connection_is_not_retried() -> None:
    async with answering(b"", close=True).serving() as upstream, client_of() as client:
        with pytest.raises(UpstreamBroken, match="without an answer"):
            await ask(client, upstream)
        assert upstream.connections == 1


async def test_started_response_is_not_retried() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK)
        await read_request(reader)
        writer.write(b"HTTP/1.1 200")

    async with Upstream(serve).serving() as upstream, client_of() as client:
        await (await ask(client, upstream)).read()
        with pytest.raises(UpstreamBroken):
            await ask(client, upstream)
        assert upstream.connections == 1


async def test_closing_a_response_closes_the_upstream_connection() -> None:
    async with answering(CHUNKED + b"2\r\nok\r\n").serving() as upstream, client_of() as client:
        answer = await ask(client, upstream)
        answer.close()
        answer.close()
        await until(lambda: upstream.lost == 1)
        with pytest.raises(UpstreamBroken):
            await answer.read_piece()
    async with answering(b"").serving() as upstream, client_of() as client:
        waiting = asyncio.create_task(ask(client, upstream))
        await until(lambda: len(upstream.requests) == 1)
        waiting.cancel()
        await until(lambda: upstream.lost == 1)
        with pytest.raises(asyncio.CancelledError):
            await waiting


async def test_fast_upstream_is_back_pressured() -> None:
    sent = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 52428800\r\n\r\n")
        for _ in range(800):
            writer.write(b"x" * 65536)
            await writer.drain()
            sent += 65536
        await read_request(reader)
        writer.write(OK)

    async with Upstream(serve).serving() as upstream, client_of() as client:
        answer = await ask(client, upstream, timeouts=UpstreamTimeouts(stall=0.1))
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.15)
        assert sent < 52428800 / 2
        assert len(answer._body) < HIGH_WATER_BYTES + 2**20
        # It was not the upstream that paused, so there was no stall.
        assert len(await answer.read()) == 52428800
        assert await (await ask(client, upstream)).read() == b"ok"
        assert upstream.connections == 1


async def test_large_body_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    async with answering(OK).serving() as upstream, client_of() as client:
        body = bytes(50_000_000)
        assert await (await ask(client, upstream, body=body, timeouts=UpstreamTimeouts(first_byte=2.0))).read() == b"ok"
        assert len(upstream.requests[0]) > 50_000_000
        monkeypatch.setattr("paddock.llm.wire.http_client_response.MAX_WHOLE_BYTES", 1000)
    async with answering(CHUNKED + b"400\r\n" + b"x" * 1024 + b"\r\n").serving() as upstream, client_of() as client:
        with pytest.raises(UpstreamBroken, match="longer than 1000 bytes"):
            await (await ask(client, upstream)).read()


async def test_idle_connections_are_bounded_in_number_and_age() -> None:
    async with answering(OK).serving() as upstream, client_of(idle_per_origin=2, idle_age=0.05) as client:
        await asyncio.gather(*[_read(client, upstream) for _ in range(5)])
        await until(lambda: len(client._connections) <= 2)
        await until(lambda: not client._connections)
        assert await _read(client, upstream) == b"ok"


async def test_early_response_closes_the_connection() -> None:
    done = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        await done.wait()

    async with Upstream(serve).serving() as upstream, client_of() as client:
        answer = await ask(client, upstream, body=bytes(30_000_000))
        assert (answer.status, await answer.read()) == (413, b"")
        await until(lambda: not client._connections)
        done.set()


async def test_small_packets_are_not_held_back() -> None:
    async with answering(OK).serving() as upstream, client_of() as client:
        await _read(client, upstream)
        (connection,) = client._connections
        assert connection._transport is not None
        raw = connection._transport.get_extra_info("socket")
        assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_closing_the_client_cancels_active_requests() -> None:
    async with answering(b"").serving() as upstream, client_of() as client:
        waiting = asyncio.create_task(ask(client, upstream))
        await until(lambda: len(upstream.requests) == 1)
        await client.close()
        with pytest.raises(UpstreamBroken):
            await waiting
        with pytest.raises(UpstreamUnreachable):
            await ask(client, upstream)


@pytest.mark.parametrize("cuts", ["halves", "bytes"])
async def test_responses_are_parsed_from_any_pieces(cuts: str) -> None:
    answer = (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nX-Long: a b\r\ntransfer-encoding: chunked\r\n\r\n"
        b"3\r\nabc\r\n0a;e=1\r\n0123456789\r\n0\r\nt: x\r\n\r\n"
    )
    loop = asyncio.get_running_loop()
    client = HttpClient()
    for cut in range(len(answer)) if cuts == "halves" else [0]:
        pieces = [answer[:cut], answer[cut:]] if cuts == "halves" else [bytes([byte]) for byte in answer]
        near, far = socket.socketpair()
        near.setblocking(False)
        _, connection = await loop.create_connection(lambda: HttpClientConnection(client, "key", 50.0, loop), sock=near)
        got = connection.send_request(b"-", b"", UpstreamTimeouts(), head_only=False)
        for piece in pieces:
            # Handed over directly: a socket would join them again.
            if piece:
                connection.data_received(piece)
        assert (got.status, got.headers[0], await got.read()) == (200, (b"x-long", b"a b"), b"abc0123456789"), cut
        assert connection in client._idle["key"], cut
        connection.abort()
        far.close()
    await client.close()


@pytest.mark.parametrize(
    "url", ["ftp://a", "http://", "nothing", "http://u:p@a", "http://a/?k=v", "http://a/#x", "http://a/ö", "http://a:x"]
)
def test_invalid_addresses_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        UpstreamAddress.parse(url)


def test_addresses_are_parsed() -> None:
    origin = UpstreamAddress.parse("https://API.example.com/v1/")
    assert (origin.tls, origin.port, origin.prefix, origin.host_header) == (True, 443, b"/v1", b"api.example.com")
    assert UpstreamAddress.parse("http://[::1]:8080").host_header == b"[::1]:8080"
    assert UpstreamAddress.parse("https://bücher.example").host == "xn--bcher-kva.example"


async def _read(client: HttpClient, upstream: Upstream) -> bytes:
    return await (await ask(client, upstream)).read()
