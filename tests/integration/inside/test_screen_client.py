"""What a box says of its screen, services and tools is only data, and may be wrong in every way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from paddock.errors import BoxError, BoxGone, BoxTimeout, InvalidInput, NotFound, PaddockError, Unavailable
from paddock.model.sandbox import Address
from paddock.model.screens import Frame
from paddock.sandbox.client import Inside

PICTURE = b"\xff\xd8\xff\xe0 a picture \xff\xd9"
Act = Callable[[asyncio.StreamWriter], Awaitable[None]]


def answer(body: bytes, status: int = 200, **headers: str) -> bytes:
    fields = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} Word\r\n{fields}Content-Length: {len(body)}\r\n\r\n".encode() + body


def frame(data: bytes = PICTURE, **changes: Any) -> bytes:
    head = {"sequence": 1, "width": 320, "height": 200, "bytes": len(data), "at": 1700000000.5, **changes}
    return json.dumps(head).encode() + b"\n" + data


@asynccontextmanager
async def liar(directory: Path, act: Act) -> AsyncIterator[Inside]:
    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await act(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_unix_server(respond, directory / "inside.sock")
    async with server, Inside(Address(token="x", socket=directory / "inside.sock")) as inside:
        yield inside


def asking(directory: Path, said: bytes, ask: Callable[[Inside], Awaitable[Any]]) -> Any:
    async def act(writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await writer.drain()

    async def talk() -> Any:
        async with liar(directory, act) as inside:
            return await asyncio.wait_for(ask(inside), 10)

    return asyncio.run(talk())


async def all_frames(inside: Inside) -> list[Frame]:
    return [frame async for frame in inside.frames()]


def test_frames_come_whole_however_they_are_cut(tmp_path: Path) -> None:
    """Several at once, and one byte after the other."""
    stream = b"".join(frame(PICTURE * number, sequence=number) for number in (1, 2, 3))

    async def act(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + stream)
        for byte in stream:
            writer.write(bytes([byte]))
            await writer.drain()

    async def talk() -> None:
        async with liar(tmp_path, act) as inside:
            frames = await all_frames(inside)
        assert [each.sequence for each in frames] == [1, 2, 3, 1, 2, 3]
        assert [each.data for each in frames] == [PICTURE * number for number in (1, 2, 3, 1, 2, 3)]
        assert (frames[0].width, frames[0].height, frames[0].at) == (320, 200, 1700000000.5)

    asyncio.run(talk())


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
def test_frames_that_are_none(tmp_path: Path, case: str) -> None:
    with pytest.raises(BoxGone):
        asking(tmp_path, answer(NO_FRAMES[case]), all_frames)


@pytest.mark.parametrize("kind", ["text/html", "image/svg+xml", "", "image/jpeg, text/html"])
def test_what_is_no_picture_is_not_passed_on(tmp_path: Path, kind: str) -> None:
    with pytest.raises(BoxGone, match="no picture"):
        asking(tmp_path, answer(b"<script>", Content_Type=kind), lambda inside: inside.screenshot())


def test_a_picture_and_the_mark_by_which_it_is_known(tmp_path: Path) -> None:
    said = answer(PICTURE, Content_Type="image/jpeg", ETag='"7-1"', X_Paddock_Width="1280", X_Paddock_Height="800")
    shot = asking(tmp_path, said, lambda inside: inside.screenshot({"scale": "0.5"}))
    assert (shot.data, shot.mime, shot.etag, shot.width, shot.height) == (PICTURE, "image/jpeg", '"7-1"', 1280, 800)


def test_an_unchanged_screen_is_no_picture(tmp_path: Path) -> None:
    assert asking(tmp_path, answer(b"", 304), lambda inside: inside.screenshot(etag='"7-1"')) is None


def test_marks_and_sizes_that_make_no_sense_are_left_out(tmp_path: Path) -> None:
    said = answer(PICTURE, Content_Type="image/png", ETag="W/\xe9", X_Paddock_Width="-5", X_Paddock_Height="9" * 5000)
    shot = asking(tmp_path, said, lambda inside: inside.screenshot())
    assert (shot.etag, shot.width, shot.height) == ("", 0, 0)


@pytest.mark.parametrize("said", [b"[]", b"{}", b'{"services": 1, "tools": 1}', b'{"services": [1], "tools": [[]]}'])
def test_lists_that_are_none(tmp_path: Path, said: bytes) -> None:
    for ask in (Inside.services, Inside.tools, Inside.terminals, Inside.start_services):
        with pytest.raises(BoxGone):
            asking(tmp_path, answer(said), ask)


@pytest.mark.parametrize(
    ("status", "error"),
    [(400, InvalidInput), (404, NotFound), (502, BoxError), (503, Unavailable), (500, InvalidInput)],
)
def test_refusals_keep_their_meaning_and_words(tmp_path: Path, status: int, error: type[PaddockError]) -> None:
    said = answer(b'{"code": "X", "message": "because"}', status)
    with pytest.raises(error, match="because"):
        asking(tmp_path, said, lambda inside: inside.call_tool("click_mouse", {"x": 1}))


def test_a_tools_name_stays_one_part_of_the_way(tmp_path: Path) -> None:
    asked = []

    async def talk() -> None:
        async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.append(await reader.readline())
            writer.write(answer(b"{}"))
            await writer.drain()
            writer.close()

        server = await asyncio.start_unix_server(respond, tmp_path / "inside.sock")
        async with server, Inside(Address(token="x", socket=tmp_path / "inside.sock")) as inside:
            await inside.call_tool("../paddock/claim?x=/", {})

    asyncio.run(talk())
    assert asked == [b"POST /tools/..%2Fpaddock%2Fclaim%3Fx%3D%2F HTTP/1.1\r\n"]


def test_a_tool_that_never_answers_is_not_waited_for(tmp_path: Path) -> None:
    async def act(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    async def talk() -> None:
        async with liar(tmp_path, act) as inside:
            with pytest.raises(BoxTimeout):
                await inside.call_tool("click_mouse", {}, timeout=0.1)
            with pytest.raises(BoxTimeout):
                await inside.mcp(b"{}", timeout=0.1)
            with pytest.raises(BoxTimeout):
                await inside.screenshot(timeout=0.1)

    asyncio.run(talk())


def test_watching_ends_with_the_box(tmp_path: Path) -> None:
    said = b'HTTP/1.1 200 OK\r\n\r\n{"type":"ping"}\n\n{"type":"service","name":"display","state":"ready"}\n\n'

    async def watch(inside: Inside) -> dict[str, Any]:
        watching = inside.watch_services()
        seen = await anext(watching)
        with pytest.raises(BoxGone):
            await anext(watching)
        return seen

    assert asking(tmp_path, said, watch)["state"] == "ready"
