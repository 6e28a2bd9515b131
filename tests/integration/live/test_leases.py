"""Input leases: at most one holder, for as long as it is connected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from paddock.errors import Conflict, SandboxNotFound
from paddock.fleet.fleet_requests import SandboxRequest
from paddock.live.input_leases import InputLeases
from tests.integration.fleet.conftest import Running, running, until

pytestmark = pytest.mark.anyio
SOON = 0.05
LONG = 60.0


@dataclass
class LeaseHarness:
    """One sandbox, and the leases of its server."""

    machine: Running
    leases: InputLeases
    sandbox: str

    async def take(self, viewer: str, *, force: bool = False) -> None:
        await self.leases.take_input("default", self.sandbox, viewer, viewer.title(), force=force)

    async def release(self, viewer: str, *, force: bool = False) -> None:
        await self.leases.release_input("default", self.sandbox, viewer, force=force)

    @property
    def holder(self) -> str | None:
        holder = self.leases.input_holder(self.sandbox)
        return holder.viewer if holder is not None else None

    async def input_events(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the sandbox's input events."""
        events = await self.machine.fleet.events.read(f"sandbox/{self.sandbox}", limit=1000)
        return [(event.type.value, dict(event.data)) for event in events if event.type.value.startswith("input.")]

    async def wait_for_input_events(self, count: int) -> list[tuple[str, dict[str, Any]]]:
        async def there() -> bool:
            return len(await self.input_events()) >= count

        await until(there)
        return await self.input_events()


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def machine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    async with running(tmp_path_factory.mktemp("fleet")) as made:
        yield made


@asynccontextmanager
async def harness(machine: Running, *, reconnect: float = LONG, attach: float = LONG) -> AsyncIterator[LeaseHarness]:
    sandbox = await machine.fleet.create("default", SandboxRequest())
    leases = InputLeases(machine.fleet, machine.fleet.events, reconnect_timeout=reconnect, attach_timeout=attach)
    try:
        yield LeaseHarness(machine, leases, sandbox.id)
    finally:
        await leases.close()
        try:
            await machine.fleet.delete("default", sandbox.id)
        except SandboxNotFound:
            pass


@pytest.fixture
async def here(machine: Running) -> AsyncIterator[LeaseHarness]:
    async with harness(machine) as made:
        yield made


async def test_input_is_taken_and_handed_back(here: LeaseHarness) -> None:
    assert here.holder is None and not here.leases.may_send_input(here.sandbox, "ada")
    await here.take("ada")
    assert here.holder == "ada"
    assert here.leases.may_send_input(here.sandbox, "ada") and not here.leases.may_send_input(here.sandbox, "bob")
    await here.take("ada")  # It is hers already.
    await here.release("ada")
    await here.release("ada")  # There is no holder any more.
    assert here.holder is None
    assert await here.input_events() == [
        ("input.taken", {"viewer": "ada", "name": "Ada"}),
        ("input.released", {"viewer": "ada", "name": "Ada", "reason": "released"}),
    ]


async def test_second_viewer_gets_the_holders_name_and_may_use_force(here: LeaseHarness) -> None:
    await here.take("ada")
    with pytest.raises(Conflict, match="Ada has the input"):
        await here.take("bob")
    with pytest.raises(Conflict, match="Ada has the input"):
        await here.release("bob")
    await here.take("bob", force=True)
    assert here.holder == "bob"
    await here.release("ada", force=True)
    assert here.holder is None
    events = await here.input_events()
    assert events[1] == ("input.taken", {"viewer": "bob", "name": "Bob", "from": "Ada"})
    assert events[2] == ("input.released", {"viewer": "bob", "name": "Bob", "reason": "forced"})


async def test_one_of_many_concurrent_takers_gets_the_input(here: LeaseHarness) -> None:
    results = await asyncio.gather(*(here.take(f"viewer-{i}") for i in range(50)), return_exceptions=True)
    assert sum(result is None for result in results) == 1
    assert sum(isinstance(result, Conflict) for result in results) == 49
    assert [kind for kind, _ in await here.input_events()] == ["input.taken"]


async def test_event_log_has_the_order_of_forced_takeovers(here: LeaseHarness) -> None:
    await asyncio.gather(*(here.take(f"viewer-{i}", force=True) for i in range(20)))
    events = await here.input_events()
    assert [data.get("from") for _, data in events] == [None, *(data["name"] for _, data in events[:-1])]
    assert events[-1][1]["viewer"] == here.holder


async def test_holder_that_never_connects_loses_input(machine: Running) -> None:
    async with harness(machine, attach=SOON) as here:
        await here.take("ada")
        events = await here.wait_for_input_events(2)
        assert events[1] == ("input.released", {"viewer": "ada", "name": "Ada", "reason": "never_connected"})
        assert here.holder is None


async def test_holder_without_connections_loses_the_input(machine: Running) -> None:
    async with harness(machine, reconnect=SOON) as here:
        with here.leases.track_connection(here.sandbox, "ada"):
            with here.leases.track_connection(here.sandbox, "ada"):
                await here.take("ada")
            await asyncio.sleep(2 * SOON)
            assert here.holder == "ada"  # One connection is left.
        events = await here.wait_for_input_events(2)
        assert events[1][1]["reason"] == "connection_lost"
        assert here.holder is None


async def test_holder_that_reconnects_in_time_keeps_the_input(machine: Running) -> None:
    async with harness(machine, reconnect=SOON, attach=SOON) as here:
        await here.take("ada")
        for _ in range(2):
            with here.leases.track_connection(here.sandbox, "ada"):
                await asyncio.sleep(2 * SOON)
                assert here.holder == "ada"
        assert len(await here.input_events()) == 1


async def test_connections_of_other_viewers_do_not_count(machine: Running) -> None:
    async with harness(machine, reconnect=SOON, attach=SOON) as here:
        with here.leases.track_connection(here.sandbox, "bob"):
            await here.take("ada")
            assert (await here.wait_for_input_events(2))[1][1]["viewer"] == "ada"


async def test_connections_are_notified_when_their_viewer_loses_the_input(here: LeaseHarness) -> None:
    lost: list[str] = []
    with (
        here.leases.track_connection(here.sandbox, "ada", lambda: lost.append("ada 1")),
        here.leases.track_connection(here.sandbox, "ada", lambda: lost.append("ada 2")),
        here.leases.track_connection(here.sandbox, "bob", lambda: lost.append("bob")),
    ):
        await here.take("ada")
        assert lost == []
        await here.take("bob", force=True)
        assert lost == ["ada 1", "ada 2"]
        await here.release("bob")
        assert lost[2:] == ["bob"]


async def test_agent_waits_until_the_input_is_free(here: LeaseHarness) -> None:
    assert await here.leases.wait_until_free(here.sandbox, 0) is None
    await here.take("ada")
    holder = await here.leases.wait_until_free(here.sandbox, SOON)
    assert holder is not None and holder.name == "Ada"
    waiting = asyncio.create_task(here.leases.wait_until_free(here.sandbox, LONG))
    await asyncio.sleep(0)
    await here.take("bob", force=True)  # From one person to the next is not free.
    await asyncio.sleep(SOON)
    assert not waiting.done()
    await here.release("bob")
    assert await waiting is None


async def test_ended_sandbox_has_no_input(machine: Running) -> None:
    async with harness(machine, reconnect=SOON) as here:
        with here.leases.track_connection(here.sandbox, "ada"):
            await here.take("ada")
            await here.machine.fleet.delete("default", here.sandbox)
            with pytest.raises(SandboxNotFound):
                await here.take("bob", force=True)

        async def gone() -> bool:
            return here.holder is None

        await until(gone)
        # Nothing follows the end of a sandbox in its log.
        events = await here.machine.fleet.events.read(f"sandbox/{here.sandbox}", limit=1000)
        assert events[-1].type.ends_stream


async def test_other_tenants_cannot_take_the_input(here: LeaseHarness) -> None:
    with pytest.raises(SandboxNotFound):
        await here.leases.take_input("other", here.sandbox, "eve", "Eve", force=True)
    await here.take("ada")
    with pytest.raises(SandboxNotFound):
        await here.leases.release_input("other", here.sandbox, "ada")


async def test_stopping_server_releases_all_leases(here: LeaseHarness) -> None:
    await here.take("ada")
    await here.leases.close()
    assert (await here.input_events())[-1][1]["reason"] == "server_stopped"


async def test_no_state_is_kept_after_release(here: LeaseHarness) -> None:
    with here.leases.track_connection(here.sandbox, "ada"):
        await here.take("ada")
        await here.leases.wait_until_free(here.sandbox, 0)
        await here.release("ada")
    assert not here.leases._states
