"""Replies of a sandbox about screen, services and tools are untrusted and may be malformed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from paddock.errors import InvalidInput, NotFound, PaddockError, SandboxError, SandboxGone, SandboxTimeout, Unavailable
from paddock.model.sandbox import DaemonAddress
from paddock.model.screens import ScreenFrame
from paddock.sandbox.daemon.client import DaemonClient

PICTURE = b"\xff\xd8\xff\xe0 a picture \xff\xd9"
Act = Callable[[asyncio.StreamWriter], Awaitable[None]]


def answer(body: bytes, status: int = 200, **headers: str) -> bytes:
    fields = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} Word\r\n{fields}Content-Length: {len(body)}\r\n\r\n".encode() + body


def frame(data: bytes = PICTURE, **changes: Any) -> bytes:
    head = {"sequence": 1, "width": 320, "height": 200, "bytes": len(data), "at": 1700000000.5, **changes}
    return json.dumps(head).encode() + b"\n" + data


@asynccontextmanager
async def fake_daemon(directory: Path, act: Act) -> AsyncIterator[DaemonClient]:
    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await act(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_unix_server(respond, directory / "inside.sock")
    async with server, DaemonClient(DaemonAddress(token="x", socket=directory / "inside.sock")) as inside:
        yield inside


def fake_reply(directory: Path, reply: bytes, ask: Callable[[DaemonClient], Awaitable[Any]]) -> Any:
    async def act(writer: asyncio.StreamWriter) -> None:
        writer.write(reply)
        await writer.drain()

    async def run_client() -> Any:
        async with fake_daemon(directory, act) as inside:
            return await asyncio.wait_for(ask(inside), 10)

    return asyncio.run(run_client())


async def all_frames(inside: DaemonClient) -> list[ScreenFrame]:
    return [frame async for frame in inside.frames()]


def test_frames_are_reassembled_from_any_chunks(tmp_path: Path) -> None:
    """Several at once, and one byte after the other."""
    stream = b"".join(frame(PICTURE * number, sequence=number) for number in (1, 2, 3))

    async def act(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + stream)
        for byte in stream:
            writer.write(bytes([byte]))
            await writer.drain()

    async def run_client() -> None:
        async with fake_daemon(tmp_path, act) as inside:
            frames = await all_frames(inside)
        assert [each.sequence for each in frames] == [1, 2, 3, 1, 2, 3]
        assert [each.data for each in frames] == [PICTURE * number for number in (1, 2, 3, 1, 2, 3)]
        assert (frames[0].width, frames[0].height, frames[0].at) == (320, 200, 1700000000.5)

    asyncio.run(run_client())


NO_FRAMES = {
    "no head": b"x" * 10_000,
    "no json": b"not json\n",
    "a list": b"[]\n",
    "an empty head": b"{}\n",
    "no bytes": frame(bytes=0),
    "negative bytes": frame(bytes=-1),
    "too many bytes": frame(bytes=2**40),
    "bytes in words": frame(bytes="12"),
    "no width": frame(width=0),
    "width in words": frame(width="wide"),
    "too high": frame(height=10**9),
    "not counted": frame(sequence=None),
    "counted from below": frame(sequence=-1),
    "counted too far": frame(sequence=2**70),
    "no time": frame(at="now"),
    "not a time": frame(at=float("nan")),
    "never": frame(at=float("inf")),
    "no picture": frame(b"<script>alert(1)</script>"),
}


@pytest.mark.parametrize("case", NO_FRAMES)
def test_malformed_frames_are_refused(tmp_path: Path, case: str) -> None:
    with pytest.raises(SandboxGone):
        fake_reply(tmp_path, answer(NO_FRAMES[case]), all_frames)


@pytest.mark.parametrize("kind", ["text/html", "image/svg+xml", "", "image/jpeg, text/html"])
def test_invalid_pictures_are_refused(tmp_path: Path, kind: str) -> None:
    with pytest.raises(SandboxGone, match="an invalid image"):
        fake_reply(tmp_path, answer(b"<script>", Content_Type=kind), lambda inside: inside.screenshot())


def test_picture_has_its_etag(tmp_path: Path) -> None:
    reply = answer(PICTURE, Content_Type="image/jpeg", ETag='"7-1"', X_Paddock_Width="1280", X_Paddock_Height="800")
    shot = fake_reply(tmp_path, reply, lambda inside: inside.screenshot({"scale": "0.5"}))
    assert (shot.data, shot.mime, shot.etag, shot.width, shot.height) == (PICTURE, "image/jpeg", '"7-1"', 1280, 800)


def test_unchanged_screen_returns_no_picture(tmp_path: Path) -> None:
    assert fake_reply(tmp_path, answer(b"", 304), lambda inside: inside.screenshot(etag='"7-1"')) is None


def test_invalid_etags_and_sizes_are_ignored(tmp_path: Path) -> None:
    reply = answer(PICTURE, Content_Type="image/png", ETag="W/\xe9", X_Paddock_Width="-5", X_Paddock_Height="9" * 5000)
    shot = fake_reply(tmp_path, reply, lambda inside: inside.screenshot())
    assert (shot.etag, shot.width, shot.height) == ("", 0, 0)


@pytest.mark.parametrize("reply", [b"[]", b"{}", b'{"services": 1, "tools": 1}', b'{"services": [1], "tools": [[]]}'])
def test_malformed_lists_are_refused(tmp_path: Path, reply: bytes) -> None:
    for ask in (DaemonClient.services, DaemonClient.tools, DaemonClient.terminals, DaemonClient.start_services):
        with pytest.raises(SandboxGone):
            fake_reply(tmp_path, answer(reply), ask)


@pytest.mark.parametrize(
    ("status", "error"),
    [(400, InvalidInput), (404, NotFound), (502, SandboxError), (503, Unavailable), (500, InvalidInput)],
)
def test_errors_keep_their_type_and_message(tmp_path: Path, status: int, error: type[PaddockError]) -> None:
    reply = answer(b'{"code": "X", "message": "because"}', status)
    with pytest.raises(error, match="because"):
        fake_reply(tmp_path, reply, lambda inside: inside.call_tool("click_mouse", {"x": 1}))


def test_tool_name_stays_one_path_segment(tmp_path: Path) -> None:
    request_lines = []

    async def run_client() -> None:
        async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            request_lines.append(await reader.readline())
            writer.write(answer(b"{}"))
            await writer.drain()
            writer.close()

        server = await asyncio.start_unix_server(respond, tmp_path / "inside.sock")
        async with server, DaemonClient(DaemonAddress(token="x", socket=tmp_path / "inside.sock")) as inside:
            await inside.call_tool("../paddock/claim?x=/", {})

    asyncio.run(run_client())
    assert request_lines == [b"POST /tools/..%2Fpaddock%2Fclaim%3Fx%3D%2F HTTP/1.1\r\n"]


def test_unresponsive_tool_times_out(tmp_path: Path) -> None:
    async def act(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    async def run_client() -> None:
        async with fake_daemon(tmp_path, act) as inside:
            with pytest.raises(SandboxTimeout):
                await inside.call_tool("click_mouse", {}, timeout=0.1)
            with pytest.raises(SandboxTimeout):
                await inside.mcp(b"{}", timeout=0.1)
            with pytest.raises(SandboxTimeout):
                await inside.screenshot(timeout=0.1)

    asyncio.run(run_client())


def test_watching_ends_with_the_sandbox(tmp_path: Path) -> None:
    reply = b'HTTP/1.1 200 OK\r\n\r\n{"type":"ping"}\n\n{"type":"service","name":"display","state":"ready"}\n\n'

    async def watch(inside: DaemonClient) -> dict[str, Any]:
        watching = inside.watch_services()
        seen = await anext(watching)
        with pytest.raises(SandboxGone):
            await anext(watching)
        return seen

    assert fake_reply(tmp_path, reply, watch)["state"] == "ready"
