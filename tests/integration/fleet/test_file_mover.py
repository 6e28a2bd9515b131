"""Data goes from sandbox to sandbox, whole or not at all, and both sandboxes may be hostile."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from paddock.errors import (
    Conflict,
    DiskFull,
    InvalidInput,
    NotFound,
    SandboxError,
    SandboxNotFound,
    SandboxTimeout,
    TooLarge,
)
from paddock.fleet.file_mover import FileMover, SandboxFileLocation
from paddock.fleet.fleet import Fleet
from paddock.fleet.fleet_requests import SandboxRequest
from paddock.model.events import EventType
from paddock.model.sandbox import SandboxLimits
from paddock.sandbox.daemon.client import DaemonClient
from tests.integration.fleet.conftest import running, until

pytestmark = pytest.mark.anyio

ME = "default"
HARMFUL = r"""touch -- --checkpoint=1 --checkpoint-action=exec=sh $'new\nline' $'\xff\xfe' "; rm -rf ~" "a b" .hidden \
    && mkdir -- -rf '$(reboot)' && ln -s .. up && ln -s / root"""


@dataclass
class TwoSandboxes:
    """Two sandboxes, and a way between them."""

    fleet: Fleet
    mover: FileMover
    a: str
    b: str
    left: DaemonClient
    right: DaemonClient

    def source(self, path: str) -> SandboxFileLocation:
        return SandboxFileLocation(sandbox=self.a, path=path)

    def destination(self, path: str) -> SandboxFileLocation:
        return SandboxFileLocation(sandbox=self.b, path=path)

    async def move_events(self, sandbox_id: str) -> list[dict[str, object]]:
        events = await self.fleet.events.read(tenant=ME, stream=f"sandbox/{sandbox_id}")
        return [dict(event.data) for event in events if event.type is EventType.FILE_MOVED]


@pytest.fixture
async def two(data: Path) -> AsyncIterator[TwoSandboxes]:
    async with running(data, sandboxes={"max_move": 64 * 2**20}) as machine:
        fleet = machine.fleet
        a, b = [(await fleet.create(ME, SandboxRequest(limits=SandboxLimits(memory=128 * 2**20)))).id for _ in range(2)]
        yield TwoSandboxes(
            fleet, FileMover(fleet), a, b, await fleet.running_client(ME, a), await fleet.running_client(ME, b)
        )


async def sh(sandbox: DaemonClient, command: str) -> str:
    result = await sandbox.run(command)
    assert result.exit_code == 0, result.stderr.decode()
    return result.stdout.decode().strip()


async def nothing_arrived(two: TwoSandboxes, directory: str = "/workspace") -> None:
    """The daemon learns of a stream that broke off a moment after we do."""

    async def empty() -> bool:
        return await sh(two.right, f"ls -A {directory} 2>/dev/null || true") == ""

    await until(empty)
    assert await two.move_events(two.b) == []


async def test_moved_file_keeps_content_and_mode(two: TwoSandboxes) -> None:
    await sh(two.left, "head -c 5000000 /dev/urandom > /workspace/数据.bin && chmod 750 /workspace/数据.bin")
    moved = await two.mover.move(ME, two.source("/workspace/数据.bin"), two.destination("/workspace/new/dir/x.bin"))
    content = await two.right.read_file("/workspace/new/dir/x.bin")
    assert (moved.size, moved.sha256) == (5_000_000, hashlib.sha256(content).hexdigest())
    assert await sh(two.left, "sha256sum < /workspace/数据.bin") == f"{moved.sha256}  -"
    assert await sh(two.right, "stat -c %a /workspace/new/dir/x.bin") == "750"


async def test_move_is_published_for_both_sandboxes(two: TwoSandboxes) -> None:
    await two.left.write_file("/workspace/a.txt", b"hello")
    await two.mover.move(ME, two.source("/workspace/a.txt"), two.destination("/workspace/b.txt"))
    expected = {
        "source": two.a,
        "source_path": "/workspace/a.txt",
        "destination": two.b,
        "destination_path": "/workspace/b.txt",
        "size": 5,
        "sha256": hashlib.sha256(b"hello").hexdigest(),
    }
    for sandbox in (two.a, two.b):
        [event] = await two.move_events(sandbox)
        assert expected.items() <= event.items()


async def test_moved_directory_keeps_links_and_empty_directories(two: TwoSandboxes) -> None:
    await sh(two.left, "mkdir -p /workspace/d/empty && echo hi > /workspace/d/f && ln -s /etc/passwd /workspace/d/link")
    moved = await two.mover.move(ME, two.source("/workspace/d"), two.destination("/workspace/copy"))
    assert moved.type == "directory" and moved.size > 0
    assert (
        await sh(two.right, "cd /workspace/copy && ls && readlink link && cat f") == "empty\nf\nlink\n/etc/passwd\nhi"
    )


async def test_source_is_moved_into_existing_directory(two: TwoSandboxes) -> None:
    await sh(two.left, "mkdir /workspace/d && echo 1 > /workspace/d/one && echo 2 > /workspace/two")
    await sh(two.right, "mkdir /workspace/here && ln -s here /workspace/there")
    await two.mover.move(ME, two.source("/workspace/d"), two.destination("/workspace/here"))
    await two.mover.move(ME, two.source("/workspace/two"), two.destination("/workspace/there"))
    await two.mover.move(ME, two.source("/workspace/two"), two.destination("/workspace/new/"))
    await two.mover.move(ME, two.source("/workspace/d/."), two.destination("/workspace/here"))
    found = await sh(two.right, "cd /workspace && find . -type f | sort")
    assert found.split() == ["./here/d/one", "./here/one", "./here/two", "./new/two"]


async def test_hostile_file_names_are_harmless(two: TwoSandboxes) -> None:
    await sh(two.left, f"mkdir /workspace/d && cd /workspace/d && {HARMFUL}")
    await two.mover.move(ME, two.source("/workspace/d"), two.destination("/workspace/got"))
    listing = "find . -printf '%y %P %l\\0' | sort -z | sha256sum"
    there = await sh(two.right, f"cd /workspace/got && {listing}")
    assert there == await sh(two.left, f"cd /workspace/d && {listing}")


async def test_move_removes_source_after_complete_copy(two: TwoSandboxes) -> None:
    await sh(two.left, "mkdir /workspace/d && echo 1 > /workspace/d/one && echo 2 > /workspace/two")
    for name in ("d", "two"):
        moved = await two.mover.move(ME, two.source(f"/workspace/{name}"), two.destination("/workspace/"), keep=False)
        assert not moved.kept
    assert await sh(two.left, "ls /workspace") == ""
    assert await sh(two.right, "cat /workspace/d/one /workspace/two") == "1\n2"


async def test_source_that_cannot_be_removed_is_reported(two: TwoSandboxes) -> None:
    moved = await two.mover.move(ME, two.source("/etc/hostname"), two.destination("/workspace/name"), keep=False)
    assert moved.kept and await sh(two.right, "cat /workspace/name") == two.a


async def test_directory_is_copied_within_one_sandbox(two: TwoSandboxes) -> None:
    await sh(two.left, "mkdir /workspace/d && echo 1 > /workspace/d/one")
    await two.mover.move(ME, two.source("/workspace/d"), two.source("/workspace/e"))
    assert await sh(two.left, "cat /workspace/e/one") == "1"
    assert len(await two.move_events(two.a)) == 1


async def test_move_onto_or_into_itself_is_refused(two: TwoSandboxes) -> None:
    await sh(two.left, "mkdir /workspace/d && echo 1 > /workspace/one")
    with pytest.raises(Conflict, match="are the same"):
        await two.mover.move(ME, two.source("/workspace/one"), two.source("/workspace/./one"))
    with pytest.raises(Conflict, match="into itself"):
        await two.mover.move(ME, two.source("/workspace/d"), two.source("/workspace/d/e"))
    with pytest.raises(Conflict, match="into itself"):
        await two.mover.move(ME, two.source("/workspace/d"), two.source("/workspace/d"))


async def test_too_large_file_is_refused_before_sending(two: TwoSandboxes) -> None:
    await sh(two.left, "truncate -s 5G /workspace/large")
    with pytest.raises(TooLarge, match="5368709120 bytes; at most 67108864"):
        await two.mover.move(ME, two.source("/workspace/large"), two.destination("/workspace/large"))
    await nothing_arrived(two)


async def test_large_directory_stops_at_the_limit(two: TwoSandboxes) -> None:
    await sh(two.left, "mkdir /workspace/d && truncate -s 5G /workspace/d/large")
    passed = 0

    def report(count: int, total: int | None) -> None:
        nonlocal passed
        passed = count

    with pytest.raises(TooLarge, match="larger than the 20000000 bytes"):
        await two.mover.move(
            ME, two.source("/workspace/d"), two.destination("/workspace/d"), max_size=20_000_000, on_progress=report
        )
    assert passed <= 20_000_000
    await nothing_arrived(two, "/workspace/d")


async def test_requested_size_is_limited_by_the_configuration(two: TwoSandboxes) -> None:
    with pytest.raises(InvalidInput, match=r"sandboxes\.max_move"):
        await two.mover.move(ME, two.source("/workspace/a"), two.destination("/workspace/a"), max_size=2**40)


async def test_growing_file_is_copied_consistently(two: TwoSandboxes) -> None:
    await sh(two.left, "head -c 30000000 /dev/zero > /workspace/log")
    growing = await two.left.start("while true; do head -c 100000 /dev/zero >> /workspace/log; done")
    moved = await two.mover.move(ME, two.source("/workspace/log"), two.destination("/workspace/log"))
    await two.left.interrupt(growing)
    assert moved.size >= 30_000_000
    assert int(await sh(two.right, "stat -c %s /workspace/log")) == moved.size


async def test_shrinking_file_fails_the_move(two: TwoSandboxes) -> None:
    await sh(two.left, "truncate -s 60000000 /workspace/log")
    shrunk = False

    def report(count: int, total: int | None) -> None:
        nonlocal shrunk
        if not shrunk:
            shrunk = True
            path = next(Path(f"/proc/{pid}/root/workspace/log") for pid in _processes(two.a))
            with path.open("r+b") as file:
                file.truncate(10)

    with pytest.raises(SandboxError):
        await two.mover.move(ME, two.source("/workspace/log"), two.destination("/workspace/log"), on_progress=report)
    await nothing_arrived(two)


def _processes(sandbox_id: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"PADDOCK_SANDBOX_ID={sandbox_id}\0".encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("which", ["a", "b"])
async def test_sandbox_death_fails_the_move_and_leaves_nothing(two: TwoSandboxes, which: str) -> None:
    await sh(two.left, "truncate -s 60000000 /workspace/log")
    ending: list[asyncio.Task[None]] = []

    def report(count: int, total: int | None) -> None:
        if not ending:
            ending.append(asyncio.ensure_future(two.fleet.delete(ME, getattr(two, which))))

    with pytest.raises(SandboxError):
        await two.mover.move(ME, two.source("/workspace/log"), two.destination("/workspace/log"), on_progress=report)
    await ending[0]
    if which == "a":
        await nothing_arrived(two)


async def test_cancelled_move_leaves_nothing_behind(two: TwoSandboxes) -> None:
    await sh(two.left, "truncate -s 60000000 /workspace/log")
    waiting: list[asyncio.Task[object]] = []

    def report(count: int, total: int | None) -> None:
        waiting[0].cancel()

    move = two.mover.move(ME, two.source("/workspace/log"), two.destination("/workspace/log"), on_progress=report)
    waiting.append(asyncio.ensure_future(move))
    with pytest.raises(asyncio.CancelledError):
        await waiting[0]
    await nothing_arrived(two)


async def test_full_disk_keeps_existing_destination_file(two: TwoSandboxes) -> None:
    await sh(
        two.left, "head -c 60000000 /dev/urandom > /dev/shm/large; mkdir /dev/shm/d && mv /dev/shm/large /dev/shm/d"
    )
    small = (await two.fleet.create(ME, SandboxRequest(limits=SandboxLimits(memory=64 * 2**20)))).id
    handle = await two.fleet.running_client(ME, small)
    await sh(handle, "echo before > /dev/shm/large")
    for source in ("/dev/shm/d/large", "/dev/shm/d/."):
        with pytest.raises((InvalidInput, DiskFull), match=r"(?i)space|wrote only"):
            await two.mover.move(ME, two.source(source), SandboxFileLocation(sandbox=small, path="/dev/shm/"))
        assert await sh(handle, "ls -A /dev/shm && cat /dev/shm/large") == "large\nbefore"


@pytest.mark.parametrize("path", ["/dev/zero", "/workspace/pipe", "/workspace/loop"])
async def test_special_files_are_refused(two: TwoSandboxes, path: str) -> None:
    await sh(two.left, "mkfifo /workspace/pipe && ln -s loop /workspace/loop")
    with pytest.raises((InvalidInput, NotFound)):
        await two.mover.move(ME, two.source(path), two.destination("/workspace/x"))
    await nothing_arrived(two)


async def test_symlinks_named_as_source_are_followed(two: TwoSandboxes) -> None:
    await sh(two.left, "cd /workspace && mkdir d && echo 1 > d/f && ln -s d dl && ln -s d/f fl")
    assert (await two.mover.move(ME, two.source("/workspace/dl"), two.destination("/workspace/x"))).type == "directory"
    assert (await two.mover.move(ME, two.source("/workspace/fl"), two.destination("/workspace/y"))).type == "file"
    assert await sh(two.right, "cat /workspace/x/f /workspace/y") == "1\n1"


async def test_stuck_destination_times_out(two: TwoSandboxes) -> None:
    await sh(two.left, "truncate -s 60000000 /workspace/log")
    record = (await two.fleet.get(ME, two.b)).record
    stopping: list[asyncio.Task[None]] = []

    def report(count: int, total: int | None) -> None:
        if not stopping:
            stopping.append(asyncio.ensure_future(two.fleet.backend.pause(record)))

    hasty = FileMover(two.fleet, stall_timeout=0.3)
    with pytest.raises(SandboxTimeout, match="stuck"):
        await hasty.move(ME, two.source("/workspace/log"), two.destination("/workspace/log"), on_progress=report)
    await stopping[0]
    await two.fleet.backend.resume(record)
    await nothing_arrived(two)


async def test_trickling_sandbox_times_out(two: TwoSandboxes) -> None:
    await sh(two.left, "truncate -s 60000000 /workspace/log")

    def report(count: int, total: int | None) -> None:
        time.sleep(0.05)

    hasty = FileMover(two.fleet, max_time=0.2)
    with pytest.raises(SandboxTimeout):
        await hasty.move(ME, two.source("/workspace/log"), two.destination("/workspace/log"), on_progress=report)
    await nothing_arrived(two)


@pytest.mark.parametrize(
    ("path", "problem"),
    [("relative", "absolute"), ("", "absolute"), ("/a\0b", "absolute"), ("/\udcff", "not Unicode")],
)
async def test_invalid_paths_are_refused(two: TwoSandboxes, path: str, problem: str) -> None:
    for source, destination in ((path, "/workspace/x"), ("/etc/hostname", path)):
        with pytest.raises(InvalidInput, match=problem):
            await two.mover.move(ME, two.source(source), two.destination(destination))


async def test_sandboxes_of_other_tenants_are_not_found(two: TwoSandboxes) -> None:
    foreign = (await two.fleet.create("other", SandboxRequest())).id
    with pytest.raises(SandboxNotFound):
        await two.mover.move(ME, two.source("/etc/hostname"), SandboxFileLocation(sandbox=foreign, path="/workspace/x"))
    with pytest.raises(SandboxNotFound):
        await two.mover.move(
            ME, SandboxFileLocation(sandbox=foreign, path="/etc/hostname"), two.destination("/workspace/x")
        )


async def test_missing_source_and_paused_sandbox_have_clear_errors(two: TwoSandboxes) -> None:
    with pytest.raises(NotFound, match="there is no"):
        await two.mover.move(ME, two.source("/workspace/none"), two.destination("/workspace/x"))
    await two.fleet.pause(ME, two.b)
    with pytest.raises(Conflict, match="Paused"):
        await two.mover.move(ME, two.source("/etc/hostname"), two.destination("/workspace/x"))
