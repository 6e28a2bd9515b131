"""Sandboxes with a replaced daemon: only requested data reaches the host."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from paddock.model.sandbox import DaemonAddress
from paddock.runs.results.deliverable_collector import CollectedDeliverables, DeliverableLimits, collect_deliverables
from paddock.runs.results.deliverable_receiver import PARTIAL
from paddock.runs.results.run_folder import RunFolder
from paddock.sandbox.daemon.client import DaemonClient
from tests.integration.runs.collection_support import names, on_disk, reason, wanted


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "runs", "run-1")


@asynccontextmanager
async def lying(directory: Path, *pieces: bytes, stall: bool = False) -> AsyncIterator[DaemonClient]:
    """A sandbox with a replaced daemon."""
    path = directory / "inside.sock"

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            if stall:
                await asyncio.sleep(30)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_unix_server(respond, path)
    async with DaemonClient(DaemonAddress(token="x", socket=path)) as inside:
        yield inside
    server.close()


def listen_to(
    folder: RunFolder, directory: Path, *pieces: bytes, stall: bool = False, **bounds: Any
) -> CollectedDeliverables:
    async def talk() -> CollectedDeliverables:
        async with lying(directory, *pieces, stall=stall) as inside:
            return await collect_deliverables(
                inside, wanted({"path": "**", "max_size": 1000}), folder, bounds=DeliverableLimits(**bounds)
            )

    return asyncio.run(asyncio.wait_for(talk(), 20))


def file(path: str, content: bytes = b"x", end: str = "") -> bytes:
    head = json.dumps({"of": 0, "file": path}).encode() + b"\n"
    blocks = len(content).to_bytes(4, "big") + content if content else b""
    return head + blocks + bytes(4) + json.dumps({"end": end}).encode() + b"\n"


DONE = b'{"of":0,"done":true}\n{"over":true}\n'
ELSEWHERE = [
    "/workspace/../../../etc/passwd",
    "/workspace/..",
    "../x",
    "x",
    "",
    "/",
    "//etc/x",
    "/workspace//x",
    "/workspace/./x",
    "/workspace/x/",
    "/etc/passwd",
    "/workspace",
    "/workspace/a\0b",
    f"/workspace/{PARTIAL}",
    "/workspace/" + "n" * 256,
    "/workspace/" + "d/" * 600 + "x",
    "/workspace/\ud800",
]


@pytest.mark.parametrize("path", ELSEWHERE, ids=range(len(ELSEWHERE)))
def test_nothing_is_written_anywhere_else(tmp_path: Path, folder: RunFolder, path: str) -> None:
    before = sorted(tmp_path.rglob("*"))
    collected = listen_to(folder, tmp_path, file(path), file("/workspace/fine"), DONE)
    assert names(collected) == ["fine"] == on_disk(folder)
    assert reason(collected).isprintable()
    assert {each for each in tmp_path.rglob("*") if "runs" not in each.parts} - set(before) <= {
        tmp_path / "inside.sock"
    }


LIES = {
    "nothing": b"",
    "no json": b"hello\n",
    "a list": b"[]\n",
    "no number": b'{"of":"0","done":true}\n',
    "unknown number": b'{"of":1,"done":true}\n',
    "negative number": b'{"of":-1,"done":true}\n',
    "unknown record": b'{"of":0,"what":1}\n',
    "after it is done": b'{"of":0,"done":true}\n' + file("/workspace/x"),
    "after the end": DONE + b"{}\n",
    "deep": b"[" * 60_000 + b"\n",
    "long line": b"x" * 100_000,
    "huge block": b'{"of":0,"file":"/workspace/x"}\n\xff\xff\xff\xff',
    "more than asked for": file("/workspace/x", b"x" * 1001),
    "in the middle of a file": b'{"of":0,"file":"/workspace/x"}\n\x00\x00\x00\x09abc',
    "odd end": b'{"of":0,"file":"/workspace/x"}\n\x00\x00\x00\x00[]\n',
}


@pytest.mark.parametrize("case", LIES)
def test_a_sandbox_that_lies_is_not_listened_to(tmp_path: Path, folder: RunFolder, case: str) -> None:
    collected = listen_to(folder, tmp_path, file("/workspace/early"), LIES[case])
    assert collected.broken
    assert names(collected) == ["early"] == on_disk(folder), "what came before stays"


def test_odd_values_are_no_more_than_odd(tmp_path: Path, folder: RunFolder) -> None:
    lines = [
        {"of": 0, "file": "/workspace/a", "executable": "yes"},
        {"of": 0, "refused": "/workspace/\x1b[2J", "why": "\x1b[2J", "size": "x"},
        {"of": 0, "refused": "/workspace/b", "why": "large", "size": -1},
        {"of": 0, "skipped": "/workspace/" + "c" * 5000, "why": ["d"]},
        {"of": 0, "again": "/../x"},
    ]
    odd = json.dumps(lines[0]).encode() + b"\n" + bytes(4) + b'{"end":["grew"]}\n'
    collected = listen_to(folder, tmp_path, odd, *(json.dumps(line).encode() + b"\n" for line in lines[1:]), DONE)
    assert collected.broken is None and not collected.delivered
    assert "a could not be read to its end" in reason(collected)
    assert reason(collected).isprintable() and all(len(note) < 300 for note in collected.notes)


def test_a_file_that_comes_again_replaces_the_first_try(tmp_path: Path, folder: RunFolder) -> None:
    tries = [file("/workspace/a", b"x" * 900, "again"), file("/workspace/../a", b"x" * 900, "again")]
    collected = listen_to(folder, tmp_path, *tries, file("/workspace/a", b"y" * 900), DONE)
    assert names(collected) == ["a"] == on_disk(folder)
    assert (folder.deliverables / "a").read_bytes() == b"y" * 900


def test_a_sandbox_may_not_try_again_without_end(tmp_path: Path, folder: RunFolder) -> None:
    collected = listen_to(folder, tmp_path, *[file("/workspace/a", b"x" * 900, "again")] * 200, files=100)
    assert collected.broken == "the sandbox sent more files than requested" and on_disk(folder) == []


def test_the_same_name_twice_is_taken_once(tmp_path: Path, folder: RunFolder) -> None:
    twice = [file("/workspace/a", b"first"), file("/workspace/a", b"second"), file("/workspace/a/b", b"below"), DONE]
    collected = listen_to(folder, tmp_path, *twice)
    assert names(collected) == ["a"] and (folder.deliverables / "a").read_bytes() == b"first"
    assert "is below a path received before it as a file" in reason(collected)


def test_a_directory_is_not_replaced_by_a_file_of_its_name(tmp_path: Path, folder: RunFolder) -> None:
    collected = listen_to(folder, tmp_path, file("/workspace/a/b"), file("/workspace/a"), DONE)
    assert names(collected) == ["a/b"] == on_disk(folder)


def test_notes_without_end_are_only_counted(tmp_path: Path, folder: RunFolder) -> None:
    skipped = b'{"of":0,"skipped":"/workspace/x","why":"link"}\n' * 5000
    collected = listen_to(folder, tmp_path, skipped, DONE)
    assert len(collected.notes) == 101 and collected.notes[-1] == "and 4900 more such files"


def test_a_silent_sandbox_is_given_up(tmp_path: Path, folder: RunFolder) -> None:
    collected = listen_to(folder, tmp_path, file("/workspace/a"), b'{"of":0,"fi', stall=True, silence=0.2)
    assert names(collected) == ["a"] and collected.broken == "the sandbox no longer answers"


def test_a_sandbox_that_never_comes_to_an_end_is_given_up(tmp_path: Path, folder: RunFolder) -> None:
    collected = listen_to(folder, tmp_path, b"{}\n", stall=True, time=0.2)
    assert collected.broken == "collecting took longer than 0 seconds"


def test_a_collection_that_is_cancelled_leaves_no_half_file(tmp_path: Path, folder: RunFolder) -> None:
    half = b'{"of":0,"file":"/workspace/b"}\n\x00\x00\x00\x09abc'

    async def talk() -> None:
        async with lying(tmp_path, file("/workspace/a"), half, stall=True) as inside:
            work = asyncio.create_task(collect_deliverables(inside, wanted("**"), folder))
            while not (folder.deliverables / PARTIAL).exists():
                await asyncio.sleep(0.001)
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work

    asyncio.run(asyncio.wait_for(talk(), 20))
    assert on_disk(folder) == ["a"]


def test_a_full_disk_is_told(tmp_path: Path, folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("paddock.runs.results.deliverable_receiver.os.write", full)
    collected = listen_to(folder, tmp_path, file("/workspace/a"), DONE)
    monkeypatch.undo()
    assert collected.broken == "the disk of this machine is full" and on_disk(folder) == []
