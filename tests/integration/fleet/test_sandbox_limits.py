"""Quotas of tenants, and limits of disk and inodes of sandboxes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from structlog.testing import LogCapture

from paddock.errors import (
    DiskFull,
    HostFull,
    PaddockError,
    QuotaExceeded,
)
from paddock.fleet.fleet_requests import SandboxRequest, VolumeRequest
from paddock.model.events import EventType
from paddock.model.sandbox import SandboxLimits, SandboxState
from paddock.sandbox.daemon.client import SandboxCommand

from .conftest import running, until

pytestmark = pytest.mark.anyio
ME = "me"


async def test_tenant_quota_is_enforced(data: Path) -> None:
    async with running(data, quotas={"sandboxes": 1, "tenants": {"big": {"sandboxes": 2}}}) as machine:
        await machine.fleet.create(ME, SandboxRequest())
        with pytest.raises(QuotaExceeded, match="delete one first"):
            await machine.fleet.create(ME, SandboxRequest())
        for _ in range(2):
            await machine.fleet.create("big", SandboxRequest())


async def test_quotas_hold_for_concurrent_requests(data: Path) -> None:
    async with running(data, quotas={"sandboxes": 3}) as machine:
        requests = [machine.fleet.create(ME, SandboxRequest()) for _ in range(8)]
        results = await asyncio.gather(*requests, return_exceptions=True)
        assert sum(isinstance(result, QuotaExceeded) for result in results) == 5


async def test_full_host_refuses_sandboxes_and_snapshots(data: Path) -> None:
    async with running(data) as machine:
        made = await machine.fleet.create(ME, SandboxRequest())
    async with running(data, sandboxes={"min_free_disk": 2**60}) as machine:
        with pytest.raises(HostFull):
            await machine.fleet.create(ME, SandboxRequest())
        with pytest.raises(HostFull):
            await machine.fleet.snapshot(ME, made.id)


async def test_disk_overuse_ends_commands_but_not_sandbox(data: Path) -> None:
    async with running(data, local={"disk_check_every": 0.05}) as machine:
        fleet = machine.fleet
        sandbox = await fleet.create(ME, SandboxRequest(limits=SandboxLimits(disk=32 * 2**20)))
        inside = await fleet.running_client(ME, sandbox.id)
        filler = "i=0; while true; do head -c 4M /dev/zero > /workspace/f$i; i=$((i+1)); done"
        result = await inside.run(SandboxCommand(filler, timeout=30))
        assert result.exit_code == 137, result
        kinds = [event.type for event in await fleet.events.read(f"sandbox/{sandbox.id}")]
        assert EventType.DISK_FULL in kinds

        async def fine() -> bool:  # Until there is room again, this may be ended as well.
            return (await inside.run("rm -f /workspace/f*; echo fine")).stdout == b"fine\n"

        await until(fine)


HIDING = """
import os, socket, sys, time
directory, method = sys.argv[1:]
kept, block = [], bytes(range(256)) * 4096
for number in range(40):
    held = os.open(directory, os.O_TMPFILE | os.O_RDWR)
    for _ in range(30): os.write(held, block)
    if method == "sent":
        ours, theirs = socket.socketpair()
        socket.send_fds(ours, [b"x"], [held])
        os.close(held)
        held = ours, theirs
    kept.append(held)
    time.sleep(0.1)
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("directory", "method", "bound"),
    [("/workspace", "open", 256), ("/tmp", "open", 256), ("/v", "open", 256), ("/workspace", "sent", 768)],
)
async def test_files_without_a_name_are_within_the_disk_limit(
    data: Path, directory: str, method: str, bound: int
) -> None:
    async with running(data) as machine:
        fleet = machine.fleet
        volume = VolumeRequest(name="v", claim="v", target="/v")
        limits = SandboxLimits(disk=32 * 2**20)
        sandbox = await fleet.create(ME, SandboxRequest(limits=limits, volumes=(volume,)))
        inside = await fleet.running_client(ME, sandbox.id)
        before = shutil.disk_usage(data).free
        running_command = asyncio.create_task(
            inside.run(SandboxCommand(["python3", "-c", HIDING, directory, method], timeout=40))
        )
        largest_loss = 0
        while not running_command.done():
            largest_loss = max(largest_loss, before - shutil.disk_usage(data).free)
            await asyncio.sleep(0.02)
        assert running_command.result().exit_code == 137
        assert largest_loss < bound * 2**20
        kinds = [event.type for event in await fleet.events.read(f"sandbox/{sandbox.id}")]
        assert EventType.DISK_FULL in kinds


async def test_inode_overuse_ends_commands(data: Path) -> None:
    if not os.statvfs(data).f_files:
        pytest.skip("this file system has no fixed number of inodes")
    async with running(data) as machine:
        fleet = machine.fleet
        sandbox = await fleet.create(ME, SandboxRequest(limits=SandboxLimits(disk=32 * 2**20)))
        inside = await fleet.running_client(ME, sandbox.id)
        filler = "for n in range(10**7): open(f'/workspace/{n}', 'w').close()"
        started = time.monotonic()
        result = await inside.run(SandboxCommand(["python3", "-c", filler], timeout=60))
        assert result.exit_code == 137 and time.monotonic() - started < 15
        kinds = [event.type for event in await fleet.events.read(f"sandbox/{sandbox.id}")]
        assert EventType.DISK_FULL in kinds


@pytest.fixture
def with_logs() -> Iterator[LogCapture]:
    capture = LogCapture()
    before = structlog.get_config()["processors"]
    structlog.configure(processors=[capture])
    yield capture
    structlog.configure(processors=before)


async def test_repeated_disk_overuse_ends_sandbox(data: Path, with_logs: LogCapture) -> None:
    limit, bound = 32 * 2**20, 2**29
    attack = "i=0; while true; do head -c 30M /dev/zero >f$1-$i || exit 7; i=$((i+1)); done"
    async with running(data) as machine:
        fleet = machine.fleet
        sandbox = await fleet.create(ME, SandboxRequest(limits=SandboxLimits(disk=limit)))
        lines = with_logs.entries
        inside = await fleet.running_client(ME, sandbox.id)
        assert (await inside.run(SandboxCommand(["sh", "-c", attack, "sh", "0"], timeout=30))).exit_code == 137

        async def stopped() -> bool:  # What starts while the first commands are being killed is killed with them.
            return "sandbox over its disk limit; commands ended" in [line["event"] for line in lines]

        await until(stopped)
        first = await machine.backend.disk_used(sandbox.record)
        for number in ("1", "2", "3"):
            result = await inside.run(SandboxCommand(["sh", "-c", attack, "sh", number], timeout=30))
            assert result.exit_code == 7
            assert b"nothing can be written until files are deleted" in result.stderr
        assert limit < await machine.backend.disk_used(sandbox.record) < first + 2**20
        assert first < limit + bound
        with pytest.raises(DiskFull, match="nothing can be written until files are deleted"):
            await inside.write_file("/workspace/more", b"more")
        assert (await inside.run("ulimit -f unlimited")).exit_code != 0
        started = await inside.start("echo heard")
        assert b"heard\n" in [event.data async for event in inside.follow(started) if hasattr(event, "data")]
        assert (await inside.run("rm f*")).exit_code == 0

        async def written() -> bool:
            return (await inside.run("echo fine > again && cat again")).stdout == b"fine\n"

        await until(written)
        assert (await fleet.get(ME, sandbox.id)).state is SandboxState.RUNNING


async def test_sandbox_that_bypasses_write_refusal_is_ended(data: Path) -> None:
    """A sparse file can be filled by writing to memory, which no limit of a process stops."""
    sparse_files = "for i in range(200): open(f'h{i}', 'w').truncate(30 * 2**20)"
    fill = (
        "import mmap, sys\n"
        "for i in range(200):\n"
        "    with open(f'h{i}', 'r+b') as f, mmap.mmap(f.fileno(), 0) as m:\n"
        "        for at in range(0, len(m), 4096): m[at] = 1\n"
    )
    async with running(data) as machine:
        fleet = machine.fleet
        sandbox = await fleet.create(ME, SandboxRequest(limits=SandboxLimits(disk=32 * 2**20)))
        inside = await fleet.running_client(ME, sandbox.id)
        assert (await inside.run(SandboxCommand(["python3", "-c", sparse_files]))).exit_code == 0

        async def ended() -> bool:
            if (await fleet.get(ME, sandbox.id)).state is not SandboxState.RUNNING:
                return True
            with contextlib.suppress(PaddockError):
                await inside.run(SandboxCommand(["python3", "-c", fill], timeout=20))
            return False

        await until(ended)
        assert (await fleet.get(ME, sandbox.id)).reason == "disk_full"
