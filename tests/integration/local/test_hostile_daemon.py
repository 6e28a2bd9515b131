"""A lying daemon affects only its own sandbox."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from tests.support.server_load import MAX_STEP_CPU, cpu_noise

from paddock.errors import InvalidInput, PaddockError, SandboxGone, SandboxTimeout
from paddock.model.sandbox import DaemonAddress
from paddock.sandbox.daemon.client import CommandEnded, DaemonClient
from paddock.sandbox.daemon.daemon_http import parse_long_json_object

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


def answer(body: bytes, head: bytes = HEAD) -> bytes:
    return head + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


NONSENSE = {
    "nothing": b"",
    "no http": b"\x00\xff\x00garbage\n\n\n",
    "bad status": b"HTTP/1.1 9999999 \r\n\r\n",
    "bad length": HEAD + b"Content-Length: -5\r\n\r\n",
    "two lengths": HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "long header": HEAD + b"X: " + b"a" * 100_000 + b"\r\n\r\n",
    "bad chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\nzzz\r\n",
    "cut off": HEAD + b"Content-Length: 1000\r\n\r\n{",
    "no json": answer(b"not json\n\n"),
    "a list": answer(b"[]\n\n"),
    "a number": answer(b"1\n\n"),
    "no end": answer(b'{"type":"stdout","text":"x"}\n\n'),
    "deep": answer(b"[" * 200_000 + b"\n\n"),
    "bad base64": answer(b'{"type":"stdout","data":"a"}\n\n'),
    "odd data": answer(b'{"type":"stdout","data":[1]}\n\n'),
    "redirect": b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
    "refusal without words": b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n",
    "refusal of another shape": b'HTTP/1.1 400 No\r\nContent-Length: 11\r\n\r\n["message"]',
}

ENDS = {
    "digits": (b'{"type":"error","error":{"evalue":"%s"}}\n\n' % (b"9" * 5000), 1),
    "not ascii": ('{"type":"error","error":{"evalue":"²"}}\n\n'.encode(), 1),
    "no object": (b'{"type":"error","error":["x"]}\n\n', 1),
    "odd trace": (b'{"type":"error","error":{"evalue":"3","traceback":"x"}}\n\n', 3),
}


@asynccontextmanager
async def daemon(
    directory: Path, act: Callable[[asyncio.StreamWriter], Awaitable[None]]
) -> AsyncIterator[DaemonClient]:
    path = directory / "inside.sock"

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await act(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_unix_server(respond, path)
    async with server, DaemonClient(DaemonAddress(token="x", socket=path)) as inside:
        yield inside


@pytest.mark.parametrize("case", NONSENSE)
def test_invalid_replies_raise_sandbox_errors(tmp_path: Path, case: str) -> None:
    async def act(writer: asyncio.StreamWriter) -> None:
        writer.write(NONSENSE[case])
        await writer.drain()

    async def call_daemon() -> None:
        async with daemon(tmp_path, act) as inside:
            with pytest.raises(PaddockError):
                await asyncio.wait_for(inside.run("true"), 10)

    asyncio.run(call_daemon())


@pytest.mark.parametrize("case", ENDS)
def test_malformed_command_end_still_ends_it(tmp_path: Path, case: str) -> None:
    body, code = ENDS[case]

    async def act(writer: asyncio.StreamWriter) -> None:
        writer.write(answer(body))

    async def call_daemon() -> None:
        async with daemon(tmp_path, act) as inside:
            events = [event async for event in inside.stream("true")]
            assert [event.exit_code for event in events if isinstance(event, CommandEnded)] == [code]

    asyncio.run(call_daemon())


def test_endless_reply_is_aborted(tmp_path: Path) -> None:
    async def act(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"\r\n")
        while True:
            writer.write(b"x" * 2**16)
            await writer.drain()

    async def call_daemon() -> None:
        async with daemon(tmp_path, act) as inside:
            with pytest.raises(InvalidInput, match="larger"):
                await inside.state()
            with pytest.raises(SandboxGone, match="an oversized event"):
                await inside.run("true")
            with pytest.raises(InvalidInput, match="larger"):
                await inside.read_file("/x", limit=1000)

    asyncio.run(call_daemon())


def test_endless_interim_replies_are_aborted(tmp_path: Path) -> None:
    async def act(writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)
            await writer.drain()

    async def call_daemon() -> None:
        async with daemon(tmp_path, act) as inside:
            with pytest.raises(SandboxGone, match="an invalid reply"):
                await asyncio.wait_for(inside.state(), 10)

    asyncio.run(call_daemon())


def test_error_messages_are_truncated(tmp_path: Path) -> None:
    async def act(writer: asyncio.StreamWriter) -> None:
        writer.write(answer(b"x" * 2**20, b"HTTP/1.1 400 No\r\n"))

    async def call_daemon() -> None:
        async with daemon(tmp_path, act) as inside:
            with pytest.raises(InvalidInput) as refused:
                await inside.state()
            assert len(refused.value.message) <= 2000

    asyncio.run(call_daemon())


def test_endless_output_is_kept_up_to_the_limit(tmp_path: Path) -> None:
    async def act(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"\r\n")
        for _ in range(2000):
            writer.write(b'{"type":"stdout","text":"%s"}\n\n' % (b"x" * 1000))
            await writer.drain()
        writer.write(b'{"type":"execution_complete"}\n\n')

    async def call_daemon() -> None:
        async with daemon(tmp_path, act) as inside:
            result = await inside.run("true", limit=5000)
            assert result.stdout == b"x" * 5000

    asyncio.run(call_daemon())


def test_fragmented_event_costs_linear_time(tmp_path: Path) -> None:
    async def act(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"\r\n")
        for _ in range(30_000):
            writer.write(b"{" * 100)
            await asyncio.sleep(0)
        await writer.drain()

    async def call_daemon() -> float:
        async with daemon(tmp_path, act) as inside:
            begin = time.process_time()
            with pytest.raises(SandboxGone):
                await inside.run("true")
            return time.process_time() - begin

    assert asyncio.run(call_daemon()) < 5


def test_silent_daemon_times_out(tmp_path: Path) -> None:
    async def act(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(1)

    async def call_daemon() -> None:
        async with daemon(tmp_path, act) as inside:
            with pytest.raises(SandboxTimeout):
                await inside.ping(timeout=0.1)

    asyncio.run(call_daemon())


ENDLESS_STREAMS = {
    "documents": b'{"type":"x"}\n' * 20_000,
    "empty lines": b"\n" * 200_000,
    "pings": b"\x89\0" * 50_000,
    "empty messages": b"\x82\0" * 50_000,
}


@pytest.mark.parametrize("case", ENDLESS_STREAMS)
def test_endless_stream_does_not_block_event_loop(tmp_path: Path, case: str) -> None:
    is_websocket = case in ("pings", "empty messages")

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += connection.recv(4096)
        if is_websocket:
            key = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key"))
            digest = hashlib.sha1(key.split(b": ")[1] + GUID).digest()
            connection.sendall(b"HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n")
            connection.sendall(b"Sec-WebSocket-Accept: " + base64.b64encode(digest) + b"\r\n\r\n")
        else:
            connection.sendall(HEAD + b"\r\n")
        try:
            while True:
                connection.sendall(ENDLESS_STREAMS[case])
        except OSError:
            connection.close()

    async def listen(inside: DaemonClient) -> None:
        if is_websocket:
            async with inside.websocket("/x") as websocket:
                while True:
                    await websocket.receive()
        else:
            async for _ in inside.watch_services():
                pass

    async def call_daemon() -> float:
        longest = 0.0
        async with DaemonClient(DaemonAddress(token="x", socket=tmp_path / "inside.sock")) as inside:
            listening = asyncio.create_task(listen(inside))
            end = time.monotonic() + 0.5
            while (began := time.monotonic()) < end:
                await asyncio.sleep(0.001)
                longest = max(longest, time.monotonic() - began)
            listening.cancel()
            # Also the goodbye is short, though the sandbox never says its own.
            async with asyncio.timeout(5):
                await asyncio.gather(listening, return_exceptions=True)
        return longest

    def longest_wait() -> float:
        (tmp_path / "inside.sock").unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(tmp_path / "inside.sock"))
            listener.listen()
            serving = threading.Thread(target=serve, args=(listener,))
            serving.start()
            try:
                return asyncio.run(call_daemon())
            finally:
                serving.join(10)

    # The one that talks is a thread of this process, and takes its share of time; a busy machine takes more of it.
    assert any(longest_wait() < 3 for _ in range(3))


def test_replies_with_millions_of_values_are_refused(tmp_path: Path) -> None:
    async def act(writer: asyncio.StreamWriter) -> None:
        writer.write(answer(b'{"content":[' + b"[]," * 4_000_000 + b"[]]}"))
        await writer.drain()

    async def call_daemon() -> float:
        async with daemon(tmp_path, act) as inside:
            begin = time.process_time()
            with pytest.raises(SandboxGone, match="more than 50000 values"):
                await inside.call_tool("x", {})
            return time.process_time() - begin

    assert asyncio.run(call_daemon()) < 1


COSTLY_REPLIES = {
    "values": b'{"content":[' + b"[]," * 200_000 + b"[]]}",
    "commas": b'{"content":["a"' + b"," * (15 * 2**20) + b"]}",
    "digits": b'{"content":[' + (b"1" * 4000 + b",") * 4000 + b"1]}",
    "text": b'{"content":"' + b"x" * (15 * 2**20) + b'"}',
    "escapes": b'{"content":"' + b"\\n" * (7 * 2**20) + b'"}',
    "text of other alphabets": b'{"content":"' + "é".encode() * (7 * 2**20) + b'"}',
    "one wide character": b'{"content":"' + b"x" * (7 * 2**20) + "\U0001f600".encode() + b'"}',
    "empty strings": b'{"content":' + b'""' * (7 * 2**20) + b"}",
    "spaces": b'{"content":1' + b" " * (15 * 2**20) + b"}",
}


@pytest.mark.parametrize("reply", COSTLY_REPLIES)
def test_costly_replies_hold_the_event_loop_briefly(reply: str) -> None:
    async def longest_step() -> float:
        longest, used = 0.0, time.thread_time()
        parsing = asyncio.ensure_future(parse_long_json_object(COSTLY_REPLIES[reply]))
        while not parsing.done():
            await asyncio.sleep(0)
            longest, used = max(longest, time.thread_time() - used), time.thread_time()
        with suppress(SandboxGone):
            await parsing
        return longest

    noise = cpu_noise()
    assert min(asyncio.run(longest_step()) for _ in range(3)) < MAX_STEP_CPU * max(1.0, noise, cpu_noise())


def test_oversized_tool_list_is_refused(tmp_path: Path) -> None:
    async def act(writer: asyncio.StreamWriter) -> None:
        writer.write(answer(b'{"tools":[{"name":"x","description":"%s"}]}' % (b"x" * 2**22)))
        await writer.drain()

    async def call_daemon() -> None:
        async with daemon(tmp_path, act) as inside:
            with pytest.raises(InvalidInput, match="larger"):
                await inside.tools()

    asyncio.run(call_daemon())
