"""Streamed tool output of a sandbox is untrusted and may be malformed."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from paddock.errors import InvalidInput, PaddockError, SandboxError, SandboxGone, SandboxTimeout
from paddock.model.sandbox import DaemonAddress
from paddock.sandbox.daemon.client import DaemonClient
from paddock.sandbox.daemon.screen_client import MAX_TOOL_RESULT_BYTES
from paddock.sandbox.daemon.tool_stream import MAX_OUTPUT_BYTES

from .test_untrusted_screen_replies import answer, fake_daemon, fake_reply

RESULT = {"content": [{"type": "text", "text": "done"}], "isError": False}
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"


def lines(*documents: Any) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in documents)


def streamed(body: bytes) -> bytes:
    return answer(body, Content_Type="application/x-ndjson")


def call_with_reply(directory: Path, reply: bytes) -> tuple[dict[str, Any], list[str]]:
    outputs: list[str] = []

    async def call(inside: DaemonClient) -> dict[str, Any]:
        return await inside.call_tool("run_shell_command", {"command": "x"}, 5.0, on_output=outputs.append)

    return fake_reply(directory, reply, call), outputs


def test_output_comes_before_the_result(tmp_path: Path) -> None:
    body = lines({"output": "a"}, {"output": "ü\n"}, {"output": "", "cut": True}, {"result": RESULT})
    assert call_with_reply(tmp_path, streamed(body)) == (RESULT, ["a", "ü\n"])


def test_output_is_passed_on_during_the_call(tmp_path: Path) -> None:
    """Lines come byte by byte, and each is known as soon as it is whole."""
    outputs: asyncio.Queue[str] = asyncio.Queue()
    seen: list[str] = []

    async def act(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM)
        for text in ("one", "two"):
            for byte in lines({"output": text}):
                writer.write(b"1\r\n%c\r\n" % byte)
            await writer.drain()
            seen.append(await outputs.get())
        last = lines({"result": RESULT})
        writer.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(last), last))
        await writer.drain()

    async def run_client() -> None:
        async with asyncio.timeout(10), fake_daemon(tmp_path, act) as inside:
            assert await inside.call_tool("run_shell_command", {}, on_output=outputs.put_nowait) == RESULT

    asyncio.run(run_client())
    assert seen == ["one", "two"]


def test_sandbox_without_streaming_returns_the_result(tmp_path: Path) -> None:
    body = answer(json.dumps(RESULT).encode(), Content_Type="application/json")
    assert call_with_reply(tmp_path, body) == (RESULT, [])


def test_streaming_is_requested_only_when_wanted(tmp_path: Path) -> None:
    request_heads: list[bytes] = []

    async def run_client() -> None:
        async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            request_heads.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(answer(b"{}", Connection="close"))
            await writer.drain()
            writer.close()

        server = await asyncio.start_unix_server(respond, tmp_path / "inside.sock")
        async with server, DaemonClient(DaemonAddress(token="x", socket=tmp_path / "inside.sock")) as inside:
            await inside.call_tool("read_file", {})
            await inside.call_tool("read_file", {}, on_output=print)

    asyncio.run(run_client())
    assert [b"application/x-ndjson" in head for head in request_heads] == [False, True]


NONSENSE = {
    "nothing": b"",
    "no result": lines({"output": "a"}),
    "a result twice": lines({"result": RESULT}, {"result": RESULT}),
    "output after the result": lines({"result": RESULT}, {"output": "a"}),
    "an empty line after the result": lines({"result": RESULT}) + b"\n",
    "an error after the result": lines({"result": RESULT}, {"error": {"status": 500, "message": "x"}}),
    "a result that is none": lines({"result": [1]}),
    "no line": b"x" * 100,
    "no end of the line": lines({"output": "a"}) + b'{"result": {}}',
    "no json": b"not json\n" + lines({"result": RESULT}),
    "no object": b"[1]\n" + lines({"result": RESULT}),
    "deep": b"[" * 100_000 + b"\n",
    "too many values": b"[" + b"[]," * 300_000 + b"[]]\n",
    "an empty line": b"\n" + lines({"result": RESULT}),
    "endless empty lines": b"\n" * 100_000,
    "empty output": lines({"output": ""}, {"result": RESULT}),
    "output that is no text": lines({"output": 7}, {"result": RESULT}),
    "no words": lines({}, {"result": RESULT}),
    "cut twice": lines({"output": "", "cut": True}, {"output": "", "cut": True}, {"result": RESULT}),
    "output after it was cut": lines({"output": "", "cut": True}, {"output": "a"}, {"result": RESULT}),
    "too much at once": lines({"output": "x" * (MAX_OUTPUT_BYTES + 1)}, {"result": RESULT}),
    "too much in wide letters": lines({"output": "\u4f60" * (MAX_OUTPUT_BYTES // 3 + 1)}, {"result": RESULT}),
    "too much by and by": lines(*[{"output": "xy"}] * (MAX_OUTPUT_BYTES // 2 + 1), {"result": RESULT}),
    "an error without a status": lines({"error": {"message": "x"}}),
    "an error that is none": lines({"error": {"status": 200, "message": "x"}}),
}


@pytest.mark.parametrize("case", NONSENSE)
def test_malformed_streams_are_refused(tmp_path: Path, case: str) -> None:
    with pytest.raises(SandboxGone):
        call_with_reply(tmp_path, streamed(NONSENSE[case]))


def test_output_up_to_the_limit_is_accepted(tmp_path: Path) -> None:
    body = lines(*[{"output": "\x00"}] * MAX_OUTPUT_BYTES, {"output": "", "cut": True}, {"result": RESULT})
    assert call_with_reply(tmp_path, streamed(body)) == (RESULT, ["\x00"] * MAX_OUTPUT_BYTES)


def test_surrogates_are_replaced(tmp_path: Path) -> None:
    body = b'{"output": "a\\ud800b"}\n' + lines({"result": RESULT})
    assert call_with_reply(tmp_path, streamed(body)) == (RESULT, ["a?b"])


def test_oversized_result_is_refused(tmp_path: Path) -> None:
    body = lines({"result": {"content": [{"type": "text", "text": "x" * (MAX_TOOL_RESULT_BYTES + 2**22)}]}})
    with pytest.raises(InvalidInput, match="larger than"):
        call_with_reply(tmp_path, streamed(body))


@pytest.mark.parametrize(("status", "error"), [(500, InvalidInput), (502, SandboxError)])
def test_errors_in_the_stream_are_raised(tmp_path: Path, status: int, error: type[PaddockError]) -> None:
    error_document = {"status": status, "code": "X", "message": "because"}
    with pytest.raises(error, match="because"):
        call_with_reply(tmp_path, streamed(lines({"output": "a"}, {"error": error_document})))


def test_broken_stream_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SandboxGone):
        call_with_reply(tmp_path, STREAM + b"10\r\n{")


@pytest.mark.parametrize("body", [lines({"output": "a"}), lines({"result": RESULT})])
def test_endless_stream_times_out(tmp_path: Path, body: bytes) -> None:
    async def act(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM + b"%x\r\n%s\r\n" % (len(body), body))
        await asyncio.Event().wait()

    async def run_client() -> None:
        async with fake_daemon(tmp_path, act) as inside:
            with pytest.raises(SandboxTimeout):
                await inside.call_tool("run_shell_command", {}, 0.2, on_output=lambda text: None)

    asyncio.run(run_client())


def test_heavy_stream_does_not_block_others(tmp_path: Path) -> None:
    """While a sandbox streams the maximum output in single characters, other tasks still run."""
    body = streamed(lines(*[{"output": "x"}] * MAX_OUTPUT_BYTES, {"result": RESULT}))

    async def act(writer: asyncio.StreamWriter) -> None:
        writer.write(body)
        await writer.drain()

    async def run_client() -> int:
        turns = 0
        async with asyncio.timeout(30), fake_daemon(tmp_path, act) as inside:
            call = asyncio.ensure_future(inside.call_tool("x", {}, on_output=lambda text: None))
            while not call.done():
                turns += 1
                await asyncio.sleep(0)
            assert await call == RESULT
        return turns

    assert asyncio.run(run_client()) > 20
