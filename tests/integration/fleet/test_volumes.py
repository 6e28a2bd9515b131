"""Volumes and host directories in sandboxes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paddock.errors import (
    Forbidden,
    InvalidInput,
)
from paddock.fleet.fleet_requests import SandboxRequest, VolumeRequest
from paddock.model.events import EventType
from paddock.model.sandbox import SandboxState
from paddock.sandbox.daemon.client import SandboxCommand

from .conftest import running, until

pytestmark = pytest.mark.anyio
ME = "me"


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
