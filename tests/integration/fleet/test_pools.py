"""Pools of sandboxes that are started ahead of need."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from paddock.errors import (
    Conflict,
    Forbidden,
    InvalidInput,
)
from paddock.fleet.fleet_requests import SandboxRequest
from paddock.model.sandbox import Sandbox, SandboxLimits, SandboxSpec, SandboxState

from .conftest import running, until

pytestmark = pytest.mark.anyio
ME = "me"


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
