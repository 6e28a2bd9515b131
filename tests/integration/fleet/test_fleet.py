"""Sandboxes of many tenants, from creation to end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import structlog
from structlog.testing import LogCapture

from paddock.errors import (
    Conflict,
    DiskFull,
    Forbidden,
    HostFull,
    ImageNotFound,
    InvalidInput,
    NameTaken,
    PaddockError,
    QuotaExceeded,
    SandboxNotFound,
    SnapshotNotFound,
)
from paddock.fleet.fleet import Fleet
from paddock.fleet.fleet_requests import SandboxRequest, VolumeRequest
from paddock.fleet.port_forwards import EXECD_PORT
from paddock.model.events import EventType
from paddock.model.sandbox import Sandbox, SandboxLimits, SandboxSpec, SandboxState, SnapshotState
from paddock.sandbox.daemon.client import SandboxCommand

from .conftest import running, until

pytestmark = pytest.mark.anyio
ME = "me"


async def test_sandbox_runs_commands_until_deleted(data: Path) -> None:
    async with running(data) as machine:
        fleet = machine.fleet
        sandbox = await fleet.create(ME, SandboxRequest(env={"GREETING": "hello"}, metadata={"purpose": "test"}))
        assert sandbox.state is SandboxState.RUNNING
        inside = await fleet.running_client(ME, sandbox.id)
        result = await inside.run('echo "$GREETING from $PADDOCK_SANDBOX_ID"')
        assert result.stdout.decode() == f"hello from {sandbox.id}\n"
        await fleet.delete(ME, sandbox.id)
        with pytest.raises(SandboxNotFound):
            await fleet.get(ME, sandbox.id)
        assert await machine.backend.leftovers() == []
        kinds = [event.type for event in await fleet.events.read(f"sandbox/{sandbox.id}")]
        assert set(kinds[:2]) == {EventType.SANDBOX_CREATED, EventType.SANDBOX_RUNNING}
        assert kinds[2:] == [EventType.SANDBOX_STOPPING, EventType.SANDBOX_ENDED]


async def test_sandbox_of_another_tenant_is_not_found(data: Path) -> None:
    async with running(data) as machine:
        fleet = machine.fleet
        sandbox = await fleet.create(ME, SandboxRequest())
        for call in (fleet.get, fleet.delete, fleet.pause, fleet.resume, fleet.running_client, fleet.snapshot):
            with pytest.raises(SandboxNotFound):
                await call("somebody else", sandbox.id)
        assert (await fleet.list("somebody else"))[1] == 0


async def test_repeated_request_key_creates_one_sandbox(data: Path) -> None:
    async with running(data) as machine:
        request = SandboxRequest(request_key="order-7")
        made = await asyncio.gather(*(machine.fleet.create(ME, request) for _ in range(8)))
        again = await machine.fleet.create(ME, request)
        assert {sandbox.id for sandbox in made} == {again.id}
        assert list(await machine.backend.leftovers()) == [again.id]


async def test_duplicate_sandbox_name_is_refused(data: Path) -> None:
    async with running(data) as machine:
        fleet = machine.fleet
        desk = SandboxRequest(name="desk", metadata={"name": "desk"})
        first = await fleet.create(ME, desk)
        with pytest.raises(NameTaken, match=f"sandbox {first.id} is named desk already"):
            await fleet.create(ME, desk)
        await fleet.create("somebody else", desk)
        await fleet.create(ME, SandboxRequest(metadata={"name": "desk"}))  # An entry of the metadata is no such name.
        again = desk.model_copy(update={"name": "other", "metadata": {"name": "other"}, "request_key": "order-7"})
        made = await asyncio.gather(*(fleet.create(ME, again) for _ in range(4)))
        assert len({sandbox.id for sandbox in made}) == 1
        for sandbox in (await fleet.list(ME))[0]:
            await fleet.delete(ME, sandbox.id)
        assert (await fleet.create(ME, desk)).metadata == {"name": "desk"}


async def test_rename_to_used_sandbox_name_is_refused(data: Path) -> None:
    async with running(data) as machine:
        fleet = machine.fleet
        desk = await fleet.create(ME, SandboxRequest(name="desk", metadata={"name": "desk"}))
        other = await fleet.create(ME, SandboxRequest())
        foreign = await fleet.create("somebody else", SandboxRequest())
        with pytest.raises(NameTaken, match=f"sandbox {desk.id} is named desk already"):
            await fleet.patch_metadata(ME, other.id, {"name": "desk", "team": "a"})
        assert (await fleet.get(ME, other.id)).metadata == {}
        assert (await fleet.patch_metadata("somebody else", foreign.id, {"name": "desk"})).metadata["name"] == "desk"
        # Repeating the own name, other names and other entries stay possible.
        for patch in ({"name": "desk", "team": "a"}, {"team": None}):
            await fleet.patch_metadata(ME, desk.id, patch)
        ends = await asyncio.gather(
            fleet.patch_metadata(ME, desk.id, {"name": "lab"}),
            fleet.patch_metadata(ME, other.id, {"name": "lab"}),
            return_exceptions=True,
        )
        assert [type(end) for end in ends].count(NameTaken) == 1
        twins = [await fleet.create(ME, SandboxRequest(metadata={"name": "twin"})) for _ in range(2)]
        assert (await fleet.patch_metadata(ME, twins[0].id, {"name": "twin", "team": "b"})).metadata["team"] == "b"
        await fleet.delete(ME, twins[0].id)
        await fleet.delete(ME, twins[1].id)
        assert (await fleet.patch_metadata(ME, other.id, {"name": "twin"})).metadata["name"] == "twin"


async def test_invalid_requests_are_rejected_and_leave_nothing(data: Path) -> None:
    async with running(data) as machine:
        for request, error in (
            (SandboxRequest(image="no-such-image"), ImageNotFound),
            (SandboxRequest(snapshot="snap-0"), SnapshotNotFound),
            (SandboxRequest(image="host", snapshot="snap-0"), InvalidInput),
            (SandboxRequest(timeout=0), InvalidInput),
            (SandboxRequest(timeout=1e9), InvalidInput),
            (SandboxRequest(volumes=(VolumeRequest(name="v", host_path="/etc", target="/v"),)), Forbidden),
            (SandboxRequest(volumes=(VolumeRequest(name="v", claim="x", target="/proc/v"),)), InvalidInput),
            (SandboxRequest(volumes=(VolumeRequest(name="v", claim="x", target="/v", sub_path="../y"),)), InvalidInput),
        ):
            with pytest.raises(error):
                await machine.fleet.create(ME, request)
        assert await machine.backend.leftovers() == []
        assert (await machine.fleet.list(ME))[1] == 0


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


async def test_expired_sandbox_ends_unless_renewed(data: Path) -> None:
    async with running(data) as machine:
        fleet = machine.fleet
        short, renewed = [await fleet.create(ME, SandboxRequest(timeout=0.5)) for _ in range(2)]
        await fleet.renew(ME, renewed.id, datetime.now(UTC) + timedelta(minutes=5))

        async def ended() -> bool:
            return (await fleet.get(ME, short.id)).state is SandboxState.TERMINATED

        await until(ended)
        assert (await fleet.get(ME, short.id)).reason == "expired"
        assert (await fleet.get(ME, renewed.id)).state is SandboxState.RUNNING
        with pytest.raises(InvalidInput):
            await fleet.renew(ME, renewed.id, datetime.now(UTC) - timedelta(seconds=1))
        with pytest.raises(Conflict):
            await fleet.renew(ME, short.id, datetime.now(UTC) + timedelta(minutes=5))


async def test_idle_sandbox_ends_but_busy_one_stays(data: Path) -> None:
    async with running(data, sandboxes={"idle_timeout": 1}) as machine:
        fleet = machine.fleet
        busy = await fleet.create(ME, SandboxRequest())
        working = asyncio.create_task((await fleet.running_client(ME, busy.id)).run("sleep 60"))
        idle = await fleet.create(ME, SandboxRequest())

        async def ended() -> bool:
            return (await fleet.get(ME, idle.id)).state is SandboxState.TERMINATED

        await until(ended)
        assert (await fleet.get(ME, idle.id)).reason == "idle"
        assert (await fleet.get(ME, busy.id)).state is SandboxState.RUNNING
        working.cancel()
        await asyncio.wait([working])


async def test_killed_sandbox_is_reported_and_its_files_are_kept(data: Path) -> None:
    async with running(data) as machine:
        fleet = machine.fleet
        sandbox = await fleet.create(ME, SandboxRequest())
        identity = machine.backend._identity(sandbox.id)
        assert identity is not None
        os.kill(identity.pid, signal.SIGKILL)

        async def failed() -> bool:
            return (await fleet.get(ME, sandbox.id)).state is SandboxState.FAILED

        await until(failed)
        assert (await fleet.get(ME, sandbox.id)).reason == "killed"
        with pytest.raises(Conflict):
            await fleet.running_client(ME, sandbox.id)
        assert list(await machine.backend.leftovers()) == [sandbox.id]
        await fleet.delete(ME, sandbox.id)


async def test_paused_sandbox_does_not_expire(data: Path) -> None:
    async with running(data) as machine:
        fleet = machine.fleet
        sandbox = await fleet.create(ME, SandboxRequest())
        inside = await fleet.running_client(ME, sandbox.id)
        assert (await fleet.pause(ME, sandbox.id)).state is SandboxState.PAUSED
        with pytest.raises(Conflict):
            await fleet.pause(ME, sandbox.id)
        with pytest.raises(Conflict):
            await fleet.running_client(ME, sandbox.id)
        assert (await fleet.resume(ME, sandbox.id)).state is SandboxState.RUNNING
        assert (await inside.run("true")).exit_code == 0


async def test_sandboxes_from_snapshot_have_its_files(data: Path) -> None:
    async with running(data) as machine:
        fleet = machine.fleet
        first = await fleet.create(ME, SandboxRequest())
        await (await fleet.running_client(ME, first.id)).run("echo kept > /workspace/a; echo kept > ~/b; mkdir /tmp/d")
        snapshot = await fleet.snapshot(ME, first.id, "before lunch")

        async def ready() -> bool:
            return (await fleet.snapshots.get(snapshot.id, ME)).state is SnapshotState.READY

        await until(ready)
        await fleet.delete(ME, first.id)
        second = await fleet.create(ME, SandboxRequest(snapshot=snapshot.id))
        inside = await fleet.running_client(ME, second.id)
        result = await inside.run("cat /workspace/a ~/b && rm /workspace/a && rmdir /tmp/d && touch ~/c")
        assert (result.exit_code, result.stdout) == (0, b"kept\nkept\n"), result
        with pytest.raises(SnapshotNotFound):
            await fleet.create("somebody else", SandboxRequest(snapshot=snapshot.id))
        await fleet.delete_snapshot(ME, snapshot.id)
        assert await machine.backend.snapshots() == []


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


async def test_volume_quota_covers_all_volumes_of_a_tenant(data: Path) -> None:
    async with running(data, local={"disk_check_every": 0.05}, quotas={"volumes": 32 * 2**20}) as machine:
        fleet = machine.fleet
        volume = VolumeRequest(name="v", claim="v", target="/v")
        writer = await fleet.create(ME, SandboxRequest(volumes=(volume,)))
        reader = await fleet.create(ME, SandboxRequest(volumes=(volume.model_copy(update={"read_only": True}),)))
        reading = await (await fleet.running_client(ME, reader.id)).start("sleep 60")
        filler = "i=0; while true; do head -c 4M /dev/zero > /v/f$i; i=$((i+1)); done"
        result = await (await fleet.running_client(ME, writer.id)).run(SandboxCommand(filler, timeout=30))
        assert result.exit_code == 137, result
        disk_events = [
            event for event in await fleet.events.read(f"sandbox/{writer.id}") if event.type is EventType.DISK_FULL
        ]
        assert disk_events[0].data["volumes"] > disk_events[0].data["limit"] == 32 * 2**20
        assert (await (await fleet.running_client(ME, reader.id)).status(reading))["running"]


async def test_named_volume_outlives_its_sandbox_unless_temporary(data: Path) -> None:
    async with running(data) as machine:
        fleet = machine.fleet
        kept = VolumeRequest(name="a", claim="kept", target="/kept")
        gone = VolumeRequest(name="b", claim="gone", target="/gone", delete_with_sandbox=True)
        first = await fleet.create(ME, SandboxRequest(volumes=(kept, gone)))
        result = await (await fleet.running_client(ME, first.id)).run(
            "mkdir /kept/sub && echo 1 > /kept/sub/x && echo 2 > /gone/y"
        )
        assert result.exit_code == 0, result
        await fleet.delete(ME, first.id)
        assert not (data / "volumes" / ME / "gone").exists()
        part = VolumeRequest(name="a", claim="kept", target="/part", sub_path="sub", read_only=True)
        second = await fleet.create(ME, SandboxRequest(volumes=(part,)))
        result = await (await fleet.running_client(ME, second.id)).run("cat /part/x; echo 3 > /part/x")
        assert result.stdout == b"1\n"
        assert b"Read-only" in result.stderr


async def test_deep_volume_is_removed_without_blocking_other_sandboxes(data: Path) -> None:
    dig = "import os\nfor _ in range(3000):\n    os.mkdir('d')\n    os.chdir('d')"
    async with running(data) as machine:
        fleet = machine.fleet
        deep = VolumeRequest(name="a", claim="deep", target="/deep", delete_with_sandbox=True)
        first = await fleet.create(ME, SandboxRequest(volumes=(deep,), timeout=5))
        result = await (await fleet.running_client(ME, first.id)).run(
            SandboxCommand(["python3", "-c", dig], cwd="/deep")
        )
        assert result.exit_code == 0, result
        second = await fleet.create(ME, SandboxRequest(timeout=5))

        async def ended() -> bool:
            both = [await fleet.get(ME, sandbox.id) for sandbox in (first, second)]
            return all(sandbox.state is SandboxState.TERMINATED for sandbox in both)

        await until(ended)
        assert not (data / "volumes" / ME / "deep").exists()
        assert (data / "volumes").stat().st_mode & 0o777 == 0o700


async def test_sandbox_that_cannot_be_ended_does_not_block_others(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(data) as machine:
        fleet = machine.fleet
        stuck, *others = [await fleet.create(ME, SandboxRequest(timeout=1)) for _ in range(3)]
        remove = machine.backend.remove

        async def refuse(sandbox_id: str) -> None:
            if sandbox_id == stuck.id:
                raise RecursionError
            await remove(sandbox_id)

        monkeypatch.setattr(machine.backend, "remove", refuse)

        async def ended() -> bool:
            rest = [await fleet.get(ME, sandbox.id) for sandbox in others]
            return all(sandbox.state is SandboxState.TERMINATED for sandbox in rest)

        await until(ended)
        monkeypatch.undo()


async def test_invalid_idle_report_is_ignored(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(data, sandboxes={"idle_timeout": 30}) as machine:
        fleet = machine.fleet
        liar = await fleet.create(ME, SandboxRequest())

        async def lie(timeout: float = 0) -> dict[str, int]:
            return {"idle_seconds": 10**400}

        monkeypatch.setattr(fleet.client(liar), "state", lie)

        async def ended() -> bool:
            return (await fleet.get(ME, liar.id)).state is SandboxState.TERMINATED

        await until(ended)


async def test_host_directory_is_mounted_only_from_allowed_paths(
    data: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    allowed = tmp_path_factory.mktemp("allowed")
    (allowed / "project").mkdir()
    (allowed / "project" / "file").write_text("mine")
    (allowed / "trap").symlink_to("/etc")
    async with running(data, sandboxes={"allowed_host_paths": [allowed]}) as machine:
        fleet = machine.fleet
        project = VolumeRequest(name="p", host_path=f"{allowed}/project", target="/project")
        sandbox = await fleet.create(ME, SandboxRequest(volumes=(project,)))
        result = await (await fleet.running_client(ME, sandbox.id)).run("cat /project/file && echo new > /project/made")
        assert (result.exit_code, result.stdout) == (0, b"mine"), result
        made = (allowed / "project" / "made").stat()
        assert (made.st_uid, made.st_gid) == (os.getuid(), os.getgid())
        for path in (f"{allowed}/../escape", f"{allowed}/trap", "/"):
            with pytest.raises(Forbidden):
                await fleet.create(ME, SandboxRequest(volumes=(project.model_copy(update={"host_path": path}),)))
        missing = project.model_copy(update={"host_path": f"{allowed}/missing"})
        with pytest.raises(InvalidInput, match="does not exist"):
            await fleet.create(ME, SandboxRequest(volumes=(missing,)))


async def test_symlink_in_volume_cannot_leave_it(data: Path) -> None:
    """The sandbox of an earlier sandbox may have left anything in a named volume."""
    async with running(data) as machine:
        fleet = machine.fleet
        volume = VolumeRequest(name="v", claim="trap", target="/v")
        first = await fleet.create(ME, SandboxRequest(volumes=(volume,)))
        await (await fleet.running_client(ME, first.id)).run(
            "ln -s /etc /v/absolute; ln -s ../../../../../etc /v/relative"
        )
        for name in ("absolute", "relative"):
            with pytest.raises(InvalidInput, match="is a link out of it"):
                await fleet.create(ME, SandboxRequest(volumes=(volume.model_copy(update={"sub_path": name}),)))


async def test_volume_cannot_be_mounted_over_reserved_paths(data: Path) -> None:
    hiding = ("/usr", "/usr/bin", "/lib", "/bin", "/run", "/opt", "/usr/lib/python3.11", "/usr/lib/python3.11/json")
    libraries = ("/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu/libc.so.6")
    async with running(data) as machine:
        fleet = machine.fleet
        volume = VolumeRequest(name="v", claim="trap", target="/v")
        for target in (*hiding, *libraries, "/etc/passwd", "/etc/passwd/x"):
            with pytest.raises(InvalidInput, match=f"nothing can be mounted at {target}"):
                await fleet.create(ME, SandboxRequest(volumes=(volume.model_copy(update={"target": target}),)))
        for target in ("/var", "/var/tmp"):
            change = {"target": target, "read_only": True}
            with pytest.raises(InvalidInput, match=f"nothing can be mounted at {target} for reading only"):
                await fleet.create(ME, SandboxRequest(volumes=(volume.model_copy(update=change),)))
        written = volume.model_copy(update={"target": "/var/tmp"})
        sandbox = await fleet.create(ME, SandboxRequest(volumes=(written,)))
        assert (await (await fleet.running_client(ME, sandbox.id)).run("echo x > /var/tmp/file")).exit_code == 0


async def test_invalid_file_owner_is_named_in_error(data: Path) -> None:
    async with running(data) as machine:
        sandbox = await machine.fleet.create(ME, SandboxRequest())
        inside = await machine.fleet.running_client(ME, sandbox.id)
        await inside.run("echo x > f")
        for owner in ({"owner": "root"}, {"owner": "12345"}, {"group": "root"}):
            with pytest.raises(InvalidInput, match=r"files of this sandbox can only belong to .*, not to the "):
                await inside._ask("POST", "/files/permissions", json={"/workspace/f": owner})
        form = aiohttp.FormData()
        metadata = json.dumps({"path": "/workspace/g", "owner": "root"})
        form.add_field("metadata", metadata, filename="metadata", content_type="application/json")
        form.add_field("file", b"x", filename="g", content_type="application/octet-stream")
        with pytest.raises(InvalidInput, match=r"not to the user root"):
            await inside._ask("POST", "/files/upload", data=form)


async def test_sandbox_port_is_reachable_on_loopback(data: Path) -> None:
    async with running(data) as machine:
        fleet = machine.fleet
        sandbox = await fleet.create(ME, SandboxRequest())
        inside = await fleet.running_client(ME, sandbox.id)
        await inside.write_file("/workspace/page", b"from the sandbox")
        await inside.start("cd /workspace && exec python3 -m http.server 8000 --bind 127.0.0.1")
        address, _ = await fleet.open_endpoint(ME, sandbox.id, 8000)
        host, port = address.split(":")

        async def fetch() -> bytes:
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"GET /page HTTP/1.0\r\n\r\n")
            try:
                return await reader.read()
            except ConnectionError:
                return b""
            finally:
                writer.close()

        async def answered() -> bool:
            return (await fetch()).endswith(b"from the sandbox")

        await until(answered)
        assert await fleet.open_endpoint(ME, sandbox.id, 8000) == (address, sandbox.token)
        await fleet.delete(ME, sandbox.id)
        with pytest.raises(ConnectionRefusedError):
            await fetch()


async def test_half_open_connections_do_not_lock_the_owner_out(data: Path) -> None:
    async with running(data) as machine:
        sandbox = await machine.fleet.create(ME, SandboxRequest())
        address, token = await machine.fleet.open_endpoint(ME, sandbox.id, EXECD_PORT)
        host, port = address.split(":")
        with ExitStack() as held:

            async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
                reader, writer = await asyncio.open_connection(host, int(port))
                held.callback(writer.close)
                return reader, writer

            for _ in range(600):
                _, writer = await connect()
                writer.write(b"GET /ping HT")
            inside = await machine.fleet.running_client(ME, sandbox.id)
            assert (await asyncio.wait_for(inside.run("echo here"), 10)).stdout == b"here\n"
            reader, writer = await connect()
            writer.write(f"GET /ping HTTP/1.1\r\nHost: x\r\nX-EXECD-ACCESS-TOKEN: {token}\r\n\r\n".encode())
            assert (await asyncio.wait_for(reader.readline(), 10)).startswith(b"HTTP/1.1 200 ")


async def test_next_fleet_adopts_running_sandboxes(data: Path) -> None:
    async with running(data) as machine:
        kept = [await machine.fleet.create(ME, SandboxRequest()) for _ in range(3)]
        inside = await machine.fleet.running_client(ME, kept[0].id)
        command = await inside.start("for i in $(seq 1 200); do echo $i; sleep 0.01; done")
        await machine.fleet.pause(ME, kept[1].id)
        identity = machine.backend._identity(kept[2].id)
    assert identity is not None
    os.kill(identity.pid, signal.SIGKILL)
    async with running(data) as machine:
        states = [(await machine.fleet.get(ME, sandbox.id)).state for sandbox in kept]
        assert states == [SandboxState.RUNNING, SandboxState.PAUSED, SandboxState.FAILED]
        inside = await machine.fleet.running_client(ME, kept[0].id)
        output = b"".join([event.data async for event in inside.follow(command) if hasattr(event, "data")])
        assert output.split() == [str(number).encode() for number in range(1, 201)]


async def test_sandboxes_without_owner_are_removed(data: Path) -> None:
    async with running(data) as machine:
        sandbox = await machine.fleet.create(ME, SandboxRequest())
        await machine.fleet.sandboxes.delete(sandbox.id)

        async def gone() -> bool:
            return not await machine.backend.leftovers()

        await until(gone)


async def test_pool_hands_out_each_sandbox_once_and_refills(data: Path) -> None:
    pools = [{"name": "ready", "image": "host", "size": 2}]
    async with running(data, pools=pools) as machine:
        fleet = machine.fleet

        async def full() -> bool:
            return fleet.pools.ready_counts(ME, "ready") == (2, 0)

        await until(full)
        waiting = fleet.pools.sandbox_ids()
        started = time.monotonic()
        sandboxes = [
            await fleet.create(tenant, SandboxRequest(pool="ready", env={"WHO": tenant})) for tenant in ("a", "b")
        ]
        assert {sandbox.id for sandbox in sandboxes} == waiting
        assert time.monotonic() - started < 1.0
        for tenant, sandbox in zip("ab", sandboxes, strict=True):
            inside = await fleet.running_client(tenant, sandbox.id)
            assert (await inside.run("echo $WHO; ls -A /workspace")).stdout.decode() == f"{tenant}\n"
        third = await fleet.create("a", SandboxRequest())
        assert third.state is SandboxState.RUNNING
        await until(full)
        for sandbox_id in fleet.pools.sandbox_ids():
            identity = machine.backend._identity(sandbox_id)
            assert identity is not None
            os.kill(identity.pid, signal.SIGKILL)
        assert (await fleet.create("a", SandboxRequest(pool="ready"))).state is SandboxState.RUNNING
        await until(full)


async def test_sandboxes_and_pools_can_run_programs_as_root(data: Path) -> None:
    pools = [{"name": "roots", "image": "host", "size": 1, "user": "root"}, {"name": "users", "image": "host"}]
    async with running(data, pools=pools) as machine:
        fleet = machine.fleet

        async def full() -> bool:
            return fleet.pools.ready_counts(ME, "roots") == (1, 0) and fleet.pools.ready_counts(ME, "users") == (2, 0)

        async def user_in(sandbox: Sandbox) -> str:
            inside = await fleet.running_client(ME, sandbox.id)
            return (await inside.run("id -un")).stdout.decode().strip()

        await until(full)
        fresh = await fleet.create(ME, SandboxRequest(user="root", limits=SandboxLimits(pids=100)))
        assert (fresh.pool, fresh.user, await user_in(fresh)) == (None, "root", "root")
        named = await fleet.create(ME, SandboxRequest(pool="roots"))
        assert (named.pool, named.user, await user_in(named)) == ("roots", "root", "root")
        await until(full)
        matching = await fleet.create(ME, SandboxRequest(user="root"))
        assert (matching.pool, await user_in(matching)) == ("roots", "root")
        ordinary = await fleet.create(ME, SandboxRequest())
        assert (ordinary.pool, ordinary.user, await user_in(ordinary)) == ("users", None, "agent")
        with pytest.raises(InvalidInput, match="pool users"):
            await fleet.create(ME, SandboxRequest(pool="users", user="root"))


async def test_tenant_pool_is_resized_and_deleted(data: Path) -> None:
    async with running(data, pools=[{"name": "shared", "image": "host", "size": 0}]) as machine:
        pools = machine.fleet.pools
        await pools.create(ME, "mine", "host", 1, SandboxLimits())
        with pytest.raises(Conflict):
            await pools.create(ME, "shared", "host", 1, SandboxLimits())
        with pytest.raises(Forbidden):
            await pools.delete(ME, "shared")

        async def grown() -> bool:
            return pools.ready_counts(ME, "mine") == (2, 0)

        await pools.resize(ME, "mine", 2)
        await until(grown)
        await pools.delete(ME, "mine")
        assert [pool.name for pool in await pools.list(ME)] == ["shared"]


async def test_pool_respects_its_upper_bound(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(data) as machine:
        fleet = machine.fleet
        start, starts = machine.backend.start, []

        async def counted(spec: SandboxSpec) -> Mapping[str, Any]:
            starts.append(spec.id)
            return await start(spec)

        monkeypatch.setattr(machine.backend, "start", counted)

        def ready(sandboxes: int) -> Callable[[], Awaitable[bool]]:
            async def reached() -> bool:
                return fleet.pools.ready_counts(ME, "bound") == (sandboxes, 0)

            return reached

        await fleet.pools.create(ME, "bound", "host", 2, SandboxLimits(), max_total=2)
        await until(ready(2))
        first, second = [await fleet.create(ME, SandboxRequest(pool="bound")) for _ in range(2)]
        assert (first.pool, second.pool) == ("bound", "bound")
        await fleet.delete(ME, first.id)
        await until(ready(1))
        assert await fleet.pools.allocated_counts(ME) == {"bound": 1}
        third = await fleet.create(ME, SandboxRequest(pool="bound"))
        beyond = await fleet.create(ME, SandboxRequest(pool="bound"))
        assert (third.pool, beyond.pool, beyond.state) == ("bound", None, SandboxState.RUNNING)
        assert len(starts) == 4
        assert (await fleet.pools.resize(ME, "bound", 1)).max_total == 2
        await fleet.pools.resize(ME, "bound", 1, max_total=3)
        await until(ready(1))
        await fleet.pools.delete(ME, "bound")


@pytest.mark.parametrize("after", [0.0, 0.05])
async def test_cancelled_pause_or_resume_completes(data: Path, monkeypatch: pytest.MonkeyPatch, after: float) -> None:
    async with running(data) as machine:
        fleet = machine.fleet
        sandbox = await fleet.create(ME, SandboxRequest())
        for name, state in (("pause", SandboxState.PAUSED), ("resume", SandboxState.RUNNING)):
            change = getattr(machine.backend, name)

            async def slowly(record: Mapping[str, Any], change: Any = change) -> None:
                await asyncio.sleep(0.2)
                await change(record)

            monkeypatch.setattr(machine.backend, name, slowly)
            waiting = asyncio.create_task(getattr(fleet, name)(ME, sandbox.id))
            await asyncio.sleep(after)
            waiting.cancel()
            await asyncio.wait([waiting])
            assert waiting.cancelled()
            # What was begun is finished.
            await until(lambda wanted=state: _is(fleet, sandbox.id, wanted))  # type: ignore[misc]
        await fleet.delete(ME, sandbox.id)


async def _is(fleet: Fleet, sandbox_id: str, state: SandboxState) -> bool:
    return (await fleet.get(ME, sandbox_id)).state is state
