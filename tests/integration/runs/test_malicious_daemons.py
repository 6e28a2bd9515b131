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
from paddock.runs.results.deliverable_receiver import PARTIAL_FILE_NAME
from paddock.runs.results.run_folder import RunFolder
from paddock.sandbox.daemon.client import DaemonClient
from tests.integration.runs.collection_support import deliverables_for, delivered_paths, missing_reason, stored_paths


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "runs", "run-1")


@asynccontextmanager
async def replaced_daemon(directory: Path, *pieces: bytes, stall: bool = False) -> AsyncIterator[DaemonClient]:
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
    async with DaemonClient(DaemonAddress(token="x", socket=path)) as daemon:
        yield daemon
    server.close()


def collect_from_daemon(
    folder: RunFolder, directory: Path, *pieces: bytes, stall: bool = False, **limits: Any
) -> CollectedDeliverables:
    async def run_collection() -> CollectedDeliverables:
        async with replaced_daemon(directory, *pieces, stall=stall) as daemon:
            return await collect_deliverables(
                daemon, deliverables_for({"path": "**", "max_size": 1000}), folder, limits=DeliverableLimits(**limits)
            )

    return asyncio.run(asyncio.wait_for(run_collection(), 20))


def file(path: str, content: bytes = b"x", end: str = "") -> bytes:
    head = json.dumps({"of": 0, "file": path}).encode() + b"\n"
    blocks = len(content).to_bytes(4, "big") + content if content else b""
    return head + blocks + bytes(4) + json.dumps({"end": end}).encode() + b"\n"


DONE = b'{"of":0,"done":true}\n{"over":true}\n'
REFUSED_PATHS = [
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
    f"/workspace/{PARTIAL_FILE_NAME}",
    "/workspace/" + "n" * 256,
    "/workspace/" + "d/" * 600 + "x",
    "/workspace/\ud800",
]


@pytest.mark.parametrize("path", REFUSED_PATHS, ids=range(len(REFUSED_PATHS)))
def test_paths_outside_the_workspace_are_not_written(tmp_path: Path, folder: RunFolder, path: str) -> None:
    before = sorted(tmp_path.rglob("*"))
    collected = collect_from_daemon(folder, tmp_path, file(path), file("/workspace/fine"), DONE)
    assert delivered_paths(collected) == ["fine"] == stored_paths(folder)
    assert missing_reason(collected).isprintable()
    assert {each for each in tmp_path.rglob("*") if "runs" not in each.parts} - set(before) <= {
        tmp_path / "inside.sock"
    }


PROTOCOL_VIOLATIONS = {
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


@pytest.mark.parametrize("case", PROTOCOL_VIOLATIONS)
def test_protocol_violation_ends_the_collection(tmp_path: Path, folder: RunFolder, case: str) -> None:
    collected = collect_from_daemon(folder, tmp_path, file("/workspace/early"), PROTOCOL_VIOLATIONS[case])
    assert collected.broken
    assert delivered_paths(collected) == ["early"] == stored_paths(folder), "what came before stays"


def test_unexpected_values_are_handled(tmp_path: Path, folder: RunFolder) -> None:
    lines = [
        {"of": 0, "file": "/workspace/a", "executable": "yes"},
        {"of": 0, "refused": "/workspace/\x1b[2J", "why": "\x1b[2J", "size": "x"},
        {"of": 0, "refused": "/workspace/b", "why": "large", "size": -1},
        {"of": 0, "skipped": "/workspace/" + "c" * 5000, "why": ["d"]},
        {"of": 0, "again": "/../x"},
    ]
    odd = json.dumps(lines[0]).encode() + b"\n" + bytes(4) + b'{"end":["grew"]}\n'
    collected = collect_from_daemon(
        folder, tmp_path, odd, *(json.dumps(line).encode() + b"\n" for line in lines[1:]), DONE
    )
    assert collected.broken is None and not collected.delivered
    assert "a could not be read to its end" in missing_reason(collected)
    assert missing_reason(collected).isprintable() and all(len(note) < 300 for note in collected.notes)


def test_resent_file_replaces_the_first_transfer(tmp_path: Path, folder: RunFolder) -> None:
    tries = [file("/workspace/a", b"x" * 900, "again"), file("/workspace/../a", b"x" * 900, "again")]
    collected = collect_from_daemon(folder, tmp_path, *tries, file("/workspace/a", b"y" * 900), DONE)
    assert delivered_paths(collected) == ["a"] == stored_paths(folder)
    assert (folder.deliverables / "a").read_bytes() == b"y" * 900


def test_number_of_resent_files_is_limited(tmp_path: Path, folder: RunFolder) -> None:
    collected = collect_from_daemon(folder, tmp_path, *[file("/workspace/a", b"x" * 900, "again")] * 200, files=100)
    assert collected.broken == "the sandbox sent more files than requested" and stored_paths(folder) == []


def test_second_file_with_the_same_name_is_refused(tmp_path: Path, folder: RunFolder) -> None:
    records = [file("/workspace/a", b"first"), file("/workspace/a", b"second"), file("/workspace/a/b", b"below"), DONE]
    collected = collect_from_daemon(folder, tmp_path, *records)
    assert delivered_paths(collected) == ["a"] and (folder.deliverables / "a").read_bytes() == b"first"
    assert "is below a path received before it as a file" in missing_reason(collected)


def test_directory_is_not_replaced_by_a_file_of_its_name(tmp_path: Path, folder: RunFolder) -> None:
    collected = collect_from_daemon(folder, tmp_path, file("/workspace/a/b"), file("/workspace/a"), DONE)
    assert delivered_paths(collected) == ["a/b"] == stored_paths(folder)


def test_further_notes_are_only_counted(tmp_path: Path, folder: RunFolder) -> None:
    skipped = b'{"of":0,"skipped":"/workspace/x","why":"link"}\n' * 5000
    collected = collect_from_daemon(folder, tmp_path, skipped, DONE)
    assert len(collected.notes) == 101 and collected.notes[-1] == "and 4900 more such files"


def test_silent_daemon_ends_the_collection(tmp_path: Path, folder: RunFolder) -> None:
    collected = collect_from_daemon(folder, tmp_path, file("/workspace/a"), b'{"of":0,"fi', stall=True, silence=0.2)
    assert delivered_paths(collected) == ["a"] and collected.broken == "the sandbox no longer answers"


def test_endless_collection_is_ended_by_the_time_limit(tmp_path: Path, folder: RunFolder) -> None:
    collected = collect_from_daemon(folder, tmp_path, b"{}\n", stall=True, time=0.2)
    assert collected.broken == "collecting took longer than 0 seconds"


def test_cancelled_collection_leaves_no_partial_file(tmp_path: Path, folder: RunFolder) -> None:
    half = b'{"of":0,"file":"/workspace/b"}\n\x00\x00\x00\x09abc'

    async def run_collection() -> None:
        async with replaced_daemon(tmp_path, file("/workspace/a"), half, stall=True) as daemon:
            work = asyncio.create_task(collect_deliverables(daemon, deliverables_for("**"), folder))
            while not (folder.deliverables / PARTIAL_FILE_NAME).exists():
                await asyncio.sleep(0.001)
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work

    asyncio.run(asyncio.wait_for(run_collection(), 20))
    assert stored_paths(folder) == ["a"]


def test_full_disk_is_reported(tmp_path: Path, folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("paddock.runs.results.deliverable_receiver.os.write", full)
    collected = collect_from_daemon(folder, tmp_path, file("/workspace/a"), DONE)
    monkeypatch.undo()
    assert collected.broken == "the disk of this machine is full" and stored_paths(folder) == []
