"""Sandboxes of many tenants, from creation to end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from paddock.errors import (
    Conflict,
    Forbidden,
    ImageNotFound,
    InvalidInput,
    NameTaken,
    SandboxNotFound,
    SnapshotNotFound,
)
from paddock.fleet.fleet import Fleet
from paddock.fleet.fleet_requests import SandboxRequest, VolumeRequest
from paddock.fleet.port_forwards import EXECD_PORT
from paddock.model.events import EventType
from paddock.model.sandbox import SandboxState, SnapshotState

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
