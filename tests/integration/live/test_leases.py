"""Who has the input of a sandbox: one, for as long as they are there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from paddock.errors import Conflict, SandboxNotFound
from paddock.fleet.requests import CreateSandbox
from paddock.live.leases import Leases
from tests.integration.fleet.conftest import Running, running, until

pytestmark = pytest.mark.anyio
SOON = 0.05
LONG = 60.0


@dataclass
class Table:
    """One sandbox, and the leases of its server."""

    machine: Running
    leases: Leases
    box: str

    async def take(self, viewer: str, *, force: bool = False) -> None:
        await self.leases.take("default", self.box, viewer, viewer.title(), force=force)

    async def release(self, viewer: str, *, force: bool = False) -> None:
        await self.leases.release("default", self.box, viewer, force=force)

    @property
    def holder(self) -> str | None:
        holder = self.leases.holder(self.box)
        return holder.viewer if holder is not None else None

    async def told(self) -> list[tuple[str, dict[str, Any]]]:
        """What the sandbox's log says about its input."""
        events = await self.machine.fleet.events.read(f"sandbox/{self.box}", limit=1000)
        return [(event.type.value, dict(event.data)) for event in events if event.type.value.startswith("input.")]

    async def until_told(self, count: int) -> list[tuple[str, dict[str, Any]]]:
        async def there() -> bool:
            return len(await self.told()) >= count

        await until(there)
        return await self.told()


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def machine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    async with running(tmp_path_factory.mktemp("fleet")) as made:
        yield made


@asynccontextmanager
async def table(machine: Running, *, reconnect: float = LONG, attach: float = LONG) -> AsyncIterator[Table]:
    sandbox = await machine.fleet.create("default", CreateSandbox())
    leases = Leases(machine.fleet, machine.fleet.events, reconnect_within=reconnect, attach_within=attach)
    try:
        yield Table(machine, leases, sandbox.id)
    finally:
        await leases.close()
        try:
            await machine.fleet.delete("default", sandbox.id)
        except SandboxNotFound:
            pass


@pytest.fixture
async def here(machine: Running) -> AsyncIterator[Table]:
    async with table(machine) as made:
        yield made


async def test_one_takes_it_and_hands_it_back(here: Table) -> None:
    assert here.holder is None and not here.leases.allows(here.box, "ada")
    await here.take("ada")
    assert here.holder == "ada"
    assert here.leases.allows(here.box, "ada") and not here.leases.allows(here.box, "bob")
    await here.take("ada")  # It is hers already.
    await here.release("ada")
    await here.release("ada")  # Nobody has it any more.
    assert here.holder is None
    assert await here.told() == [
        ("input.taken", {"viewer": "ada", "name": "Ada"}),
        ("input.released", {"viewer": "ada", "name": "Ada", "reason": "released"}),
    ]


async def test_another_is_told_who_has_it_and_may_use_force(here: Table) -> None:
    await here.take("ada")
    with pytest.raises(Conflict, match="Ada has the input"):
        await here.take("bob")
    with pytest.raises(Conflict, match="Ada has the input"):
        await here.release("bob")
    await here.take("bob", force=True)
    assert here.holder == "bob"
    await here.release("ada", force=True)
    assert here.holder is None
    told = await here.told()
    assert told[1] == ("input.taken", {"viewer": "bob", "name": "Bob", "from": "Ada"})
    assert told[2] == ("input.released", {"viewer": "bob", "name": "Bob", "reason": "forced"})


async def test_of_many_who_take_it_at_once_one_gets_it(here: Table) -> None:
    results = await asyncio.gather(*(here.take(f"viewer-{i}") for i in range(50)), return_exceptions=True)
    assert sum(result is None for result in results) == 1
    assert sum(isinstance(result, Conflict) for result in results) == 49
    assert [kind for kind, _ in await here.told()] == ["input.taken"]


async def test_when_many_use_force_the_log_says_in_which_order(here: Table) -> None:
    await asyncio.gather(*(here.take(f"viewer-{i}", force=True) for i in range(20)))
    told = await here.told()
    assert [data.get("from") for _, data in told] == [None, *(data["name"] for _, data in told[:-1])]
    assert told[-1][1]["viewer"] == here.holder


async def test_who_never_connects_loses_it(machine: Running) -> None:
    async with table(machine, attach=SOON) as here:
        await here.take("ada")
        told = await here.until_told(2)
        assert told[1] == ("input.released", {"viewer": "ada", "name": "Ada", "reason": "never_connected"})
        assert here.holder is None


async def test_who_loses_the_last_connection_loses_it(machine: Running) -> None:
    async with table(machine, reconnect=SOON) as here:
        with here.leases.attach(here.box, "ada"):
            with here.leases.attach(here.box, "ada"):
                await here.take("ada")
            await asyncio.sleep(2 * SOON)
            assert here.holder == "ada"  # One connection is left.
        told = await here.until_told(2)
        assert told[1][1]["reason"] == "connection_lost"
        assert here.holder is None


async def test_who_comes_back_in_time_keeps_it(machine: Running) -> None:
    async with table(machine, reconnect=SOON, attach=SOON) as here:
        await here.take("ada")
        for _ in range(2):
            with here.leases.attach(here.box, "ada"):
                await asyncio.sleep(2 * SOON)
                assert here.holder == "ada"
        assert len(await here.told()) == 1


async def test_the_connections_of_others_do_not_count(machine: Running) -> None:
    async with table(machine, reconnect=SOON, attach=SOON) as here:
        with here.leases.attach(here.box, "bob"):
            await here.take("ada")
            assert (await here.until_told(2))[1][1]["viewer"] == "ada"


async def test_connections_are_told_when_their_viewer_loses_it(here: Table) -> None:
    lost: list[str] = []
    with (
        here.leases.attach(here.box, "ada", lambda: lost.append("ada 1")),
        here.leases.attach(here.box, "ada", lambda: lost.append("ada 2")),
        here.leases.attach(here.box, "bob", lambda: lost.append("bob")),
    ):
        await here.take("ada")
        assert lost == []
        await here.take("bob", force=True)
        assert lost == ["ada 1", "ada 2"]
        await here.release("bob")
        assert lost[2:] == ["bob"]


async def test_an_agent_waits_until_nobody_has_it(here: Table) -> None:
    assert await here.leases.free(here.box, 0) is None
    await here.take("ada")
    holder = await here.leases.free(here.box, SOON)
    assert holder is not None and holder.name == "Ada"
    waiting = asyncio.create_task(here.leases.free(here.box, LONG))
    await asyncio.sleep(0)
    await here.take("bob", force=True)  # From one person to the next is not free.
    await asyncio.sleep(SOON)
    assert not waiting.done()
    await here.release("bob")
    assert await waiting is None


async def test_a_sandbox_that_has_ended_has_no_input(machine: Running) -> None:
    async with table(machine, reconnect=SOON) as here:
        with here.leases.attach(here.box, "ada"):
            await here.take("ada")
            await here.machine.fleet.delete("default", here.box)
            with pytest.raises(SandboxNotFound):
                await here.take("bob", force=True)

        async def gone() -> bool:
            return here.holder is None

        await until(gone)
        # Nothing follows the end of a sandbox in its log.
        events = await here.machine.fleet.events.read(f"sandbox/{here.box}", limit=1000)
        assert events[-1].type.last


async def test_another_tenant_sees_nothing_to_take(here: Table) -> None:
    with pytest.raises(SandboxNotFound):
        await here.leases.take("other", here.box, "eve", "Eve", force=True)
    await here.take("ada")
    with pytest.raises(SandboxNotFound):
        await here.leases.release("other", here.box, "ada")


async def test_a_server_that_stops_hands_everything_back(here: Table) -> None:
    await here.take("ada")
    await here.leases.close()
    assert (await here.told())[-1][1]["reason"] == "server_stopped"


async def test_nothing_is_kept_of_what_is_over(here: Table) -> None:
    with here.leases.attach(here.box, "ada"):
        await here.take("ada")
        await here.leases.free(here.box, 0)
        await here.release("ada")
    assert not here.leases._places
