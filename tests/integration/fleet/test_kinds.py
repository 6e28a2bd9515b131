"""Sandboxes that are asked for by kind, and pools of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paddock.errors import ImageNotFound, InvalidInput
from paddock.fleet.fleet_requests import SandboxRequest
from paddock.model.sandbox import SandboxLimits

from .conftest import Running, running, until

pytestmark = pytest.mark.anyio
ME = "me"
KINDS: dict[str, Any] = {
    "linux": {"image": "host", "screen": False, "limits": {"memory": "256Mi", "pids": 99}},
    "code": {"image": "host"},
}


async def output(machine: Running, sandbox_id: str, command: str) -> str:
    return (await (await machine.fleet.running_client(ME, sandbox_id)).run(command)).stdout.decode().strip()


async def test_kind_sets_image_limits_and_name(data: Path) -> None:
    async with running(data, kinds=KINDS, sandboxes={"default_image": "none"}) as machine:
        sandbox = await machine.fleet.create(ME, SandboxRequest(kind="linux", env={"PADDOCK_KIND": "forged"}))
        assert (sandbox.kind, sandbox.image) == ("linux", "host")
        assert (sandbox.limits.memory, sandbox.limits.pids) == (256 * 2**20, 99)
        assert await output(machine, sandbox.id, "echo $PADDOCK_KIND") == "linux"
        assert (await machine.fleet.get(ME, sandbox.id)).kind == "linux"


async def test_request_overrides_settings_of_kind(data: Path) -> None:
    kinds = {**KINDS, "linux": {**KINDS["linux"], "image": "none"}}
    async with running(data, kinds=kinds) as machine:
        request = SandboxRequest(kind="linux", image="host", limits=SandboxLimits(pids=55))
        sandbox = await machine.fleet.create(ME, request)
        assert (sandbox.kind, sandbox.image) == ("linux", "host")
        assert (sandbox.limits.memory, sandbox.limits.pids) == (256 * 2**20, 55)


async def test_kind_name_is_accepted_as_image(data: Path) -> None:
    async with running(data, kinds=KINDS) as machine:
        sandbox = await machine.fleet.create(ME, SandboxRequest(kind="linux", image="linux"))
        assert (sandbox.kind, sandbox.image) == ("linux", "host")


async def test_sandbox_without_requested_kind_has_no_kind(data: Path) -> None:
    async with running(data) as machine:
        sandbox = await machine.fleet.create(ME, SandboxRequest())
        assert sandbox.kind is None
        assert await output(machine, sandbox.id, "echo ${PADDOCK_KIND-none}") == "none"


async def test_errors_for_unknown_kinds_and_unbuilt_images_name_the_fix(data: Path) -> None:
    async with running(data) as machine:
        with pytest.raises(InvalidInput, match="known are: code, linux, browser, windows, mobile"):
            await machine.fleet.create(ME, SandboxRequest(kind="amiga"))
        with pytest.raises(ImageNotFound, match="paddock image build code"):
            await machine.fleet.create(ME, SandboxRequest(kind="code"))


async def test_pool_of_kind_serves_only_that_kind(data: Path) -> None:
    async with running(data, kinds=KINDS) as machine:
        pools = machine.fleet.pools
        pool = await pools.create(ME, "desks", None, 1, SandboxLimits(), "linux")
        assert (pool.image, pool.kind, pool.limits.pids) == ("host", "linux", 99)

        async def filled() -> bool:
            return pools.ready_counts(ME, "desks")[0] == 1

        await until(filled)
        other = await machine.fleet.create(ME, SandboxRequest(kind="code", limits=pool.limits))
        assert other.pool is None
        taken = await machine.fleet.create(ME, SandboxRequest(kind="linux"))
        assert (taken.pool, taken.kind) == ("desks", "linux")
        assert await output(machine, taken.id, "echo $PADDOCK_KIND") == "linux"
        await pools.delete(ME, "desks")


async def test_configured_pool_may_have_a_kind(data: Path) -> None:
    async with running(data, kinds=KINDS, pools=[{"name": "desks", "kind": "linux", "size": 1}]) as machine:

        async def filled() -> bool:
            return machine.fleet.pools.ready_counts(ME, "desks")[0] == 1

        await until(filled)
        taken = await machine.fleet.create(ME, SandboxRequest(pool="desks"))
        assert (taken.pool, taken.kind) == ("desks", "linux")
        assert await output(machine, taken.id, "echo $PADDOCK_KIND") == "linux"


async def test_request_with_kind_unlike_its_pool_is_refused(data: Path) -> None:
    async with running(data, kinds=KINDS) as machine:
        await machine.fleet.pools.create(ME, "desks", None, 0, SandboxLimits(), "linux")
        with pytest.raises(InvalidInput, match="kind linux, not code"):
            await machine.fleet.create(ME, SandboxRequest(pool="desks", kind="code"))
        with pytest.raises(InvalidInput, match="an image or a kind"):
            await machine.fleet.pools.create(ME, "none", None, 0, SandboxLimits())


async def test_pools_of_kinds_survive_restart(data: Path) -> None:
    async with running(data, kinds=KINDS) as machine:
        await machine.fleet.pools.create(ME, "desks", None, 0, SandboxLimits(), "linux")
    async with running(data, kinds=KINDS) as machine:
        assert (await machine.fleet.pools.get(ME, "desks")).kind == "linux"
