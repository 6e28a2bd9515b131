"""The table of runs: stored fields, claims of runs by servers, and concurrent claims."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from paddock.errors import Conflict, InvalidInput, RunNotFound
from paddock.events.event_log import EventLog
from paddock.model.events import EventType
from paddock.model.runs import EndedBy, Run, RunResult, RunStage, RunState
from paddock.model.task import Task
from paddock.runs.execution.queue_selection import RunCapacity
from paddock.store.database import Store
from paddock.store.event_store import NewEvent
from paddock.store.run_store import RunStore

pytestmark = pytest.mark.anyio
START = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
LATER = START + timedelta(minutes=1)
CANCELLED = RunResult(state=RunState.CANCELLED, ended_by=EndedBy.CANCEL, reason="enough")


def a_task(**fields: Any) -> Task:
    return Task.model_validate({"name": "work", "goal": "do it", "entrypoint": "true", **fields})


def a_run(number: int = 0, tenant: str = "default", task: Task | None = None, **fields: Any) -> Run:
    at = START + timedelta(seconds=number)
    task = task or a_task()
    defaults = {
        "state": RunState.QUEUED,
        "stage": RunStage.ADMIT,
        "name": task.name,
        "created_at": at,
        "changed_at": at,
    }
    return Run(
        **(defaults | {"id": f"run-{number}", "tenant": tenant, "task": task, "priority": task.priority} | fields)
    )


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with await Store.open(tmp_path / "p.db") as opened:
        yield opened


@pytest.fixture
def runs(store: Store) -> RunStore:
    return RunStore(store)


async def keep(store: Store, *some: Run) -> None:
    for run in some:
        assert await store.write(RunStore(store).insert_work(run)) == (run, True)


async def test_stored_run_is_unchanged(store: Store, runs: RunStore) -> None:
    kept = a_run(
        task=a_task(end={"silence": None}, deliverables="a.txt", secrets=["KEY"], verify="true", env={"A": "b"}),
        group="all",
        inputs="bundle",
        progress={"stages": {"admit": 0.5}},
        result=RunResult(state=RunState.FAILED, ended_by=EndedBy.EXIT, reason="no", exit_code=1),
        owner="me",
        owned_until=START,
        cancelling="why",
    )
    await keep(store, kept)
    assert await runs.get("run-0") == kept
    assert (await runs.get("run-0")).task.end.silence is None


async def test_same_request_key_creates_one_run_per_tenant(store: Store, runs: RunStore) -> None:
    await keep(store, a_run(1, request_key="r"), a_run(2, "other", request_key="r"))
    again, new = await store.write(runs.insert_work(a_run(3, request_key="r")))
    assert (again.id, new) == ("run-1", False)
    assert (await runs.list("default"))[1] == 1


async def test_tenants_do_not_see_each_other(store: Store, runs: RunStore) -> None:
    await keep(store, a_run(1, "one"))
    with pytest.raises(RunNotFound):
        await runs.get("run-1", "two")
    assert await runs.list("two") == ([], 0)


async def test_runs_are_listed_by_state_name_and_group(store: Store, runs: RunStore) -> None:
    await keep(
        store,
        a_run(1, name="work claude", group="a"),
        a_run(2, name="work codex", group="a", state=RunState.FAILED),
        a_run(3, task=a_task(name="other")),
    )

    async def ids(**filters: Any) -> list[str]:
        return [run.id for run in (await runs.list("default", **filters))[0]]

    assert await ids() == ["run-3", "run-2", "run-1"]
    assert await ids(name="work") == ["run-2", "run-1"]
    assert await ids(name="work codex") == ["run-2"]
    assert await ids(group="a", states=[RunState.QUEUED]) == ["run-1"]
    assert await ids(page=2, page_size=2) == ["run-1"]
    with pytest.raises(InvalidInput):
        await runs.list("default", page=0)


async def test_runs_are_claimed_by_priority_then_age_unless_delayed(store: Store, runs: RunStore) -> None:
    await keep(
        store,
        a_run(1),
        a_run(2, task=a_task(priority=5)),
        a_run(3, not_before=LATER),
        a_run(4),
    )
    capacity = RunCapacity(free=2)
    claimed = await runs.claim("me", START + timedelta(seconds=9), LATER, capacity.select_runs)
    assert [run.id for run in claimed] == ["run-2", "run-1"]
    assert claimed[0].state is RunState.RUNNING and claimed[0].owner == "me"
    assert claimed[0].started_at == START + timedelta(seconds=9)
    assert await runs.next_due(START + timedelta(seconds=9)) == LATER
    assert [run.id for run in await runs.claim("me", LATER, LATER, capacity.select_runs)] == ["run-3", "run-4"]


async def test_concurrency_is_limited_per_tenant_and_task(store: Store, runs: RunStore) -> None:
    narrow = a_task(name="narrow", concurrency=1)
    await keep(
        store,
        a_run(1, task=narrow),
        a_run(2, task=narrow),
        a_run(3, "busy"),
        a_run(4, "busy"),
        a_run(5, "busy"),
        a_run(6, "other", task=narrow),
    )
    capacity = RunCapacity(free=10, tenant_parallel=2)
    assert [run.id for run in await runs.claim("me", START, LATER, capacity.select_runs)] == [
        "run-1",
        "run-3",
        "run-4",
        "run-6",
    ]
    assert await runs.claim("me", START, LATER, capacity.select_runs) == []
    await runs.update("run-1", "me", state=RunState.SUCCEEDED)
    assert [run.id for run in await runs.claim("me", START, LATER, capacity.select_runs)] == ["run-2"]


async def test_concurrent_claims_get_disjoint_runs(store: Store, tmp_path: Path) -> None:
    await keep(store, *(a_run(number) for number in range(20)))
    async with await Store.open(tmp_path / "p.db") as other:
        capacity = RunCapacity(free=15)
        first, second = await asyncio.gather(
            RunStore(store).claim("one", START, LATER, capacity.select_runs),
            RunStore(other).claim("two", START, LATER, capacity.select_runs),
        )
    taken = [run.id for run in (*first, *second)]
    assert len(taken) == len(set(taken)) == 20


async def test_run_is_changed_by_its_owner_until_its_lease_expires(store: Store, runs: RunStore) -> None:
    await keep(store, a_run(1))
    await runs.claim("one", START, LATER, RunCapacity(free=1).select_runs)
    with pytest.raises(Conflict):
        await runs.update("run-1", "two", stage=RunStage.WATCH)
    assert await runs.take_over("two", START, LATER, limit=9, alone=False) == []
    assert await runs.renew("one", LATER + timedelta(minutes=1)) == [("run-1", None, False)]
    assert await runs.take_over("two", LATER, LATER, limit=9, alone=False) == []
    after = LATER + timedelta(minutes=2)
    assert [run.id for run in await runs.take_over("two", after, after, limit=9, alone=False)] == ["run-1"]
    with pytest.raises(Conflict):
        await runs.update("run-1", "one", stage=RunStage.WATCH)
    assert await runs.renew("one", LATER) == []


async def test_runs_of_only_server_or_released_lease_are_taken_over(store: Store, runs: RunStore) -> None:
    await keep(store, a_run(1), a_run(2))
    await runs.claim("one", START, LATER, RunCapacity(free=2).select_runs)
    assert len(await runs.take_over("two", START, LATER, limit=9, alone=True)) == 2
    assert await runs.take_over("two", START, LATER, limit=9, alone=True) == []
    await runs.release_leases("two")
    assert len(await runs.take_over("three", START, LATER, limit=1, alone=False)) == 1


async def test_cancel_ends_queued_run_and_notifies_running_run(store: Store, runs: RunStore) -> None:
    await keep(store, a_run(1), a_run(2))
    await runs.claim("me", START, LATER, RunCapacity(free=1).select_runs)

    async def cancel(run_id: str, hard: bool = False) -> tuple[Run, bool]:
        return await store.write(runs.cancel_work(run_id, "enough", hard, CANCELLED))

    waiting, news = await cancel("run-2")
    assert news and waiting.state is RunState.CANCELLED and waiting.result == CANCELLED and waiting.ended_at
    assert await cancel("run-2") == (waiting, False)
    running, news = await cancel("run-1")
    assert news and running.state is RunState.RUNNING and (running.cancelling, running.hard) == ("enough", False)
    assert (await cancel("run-1"))[1] is False
    assert (await cancel("run-1", hard=True))[0].hard
    assert await runs.renew("me", LATER) == [("run-1", "enough", True)]


async def test_ended_run_can_be_deleted(store: Store, runs: RunStore) -> None:
    await keep(store, a_run(1, inputs="b", state=RunState.LOST, ended_at=START), a_run(2, inputs="b"))
    with pytest.raises(Conflict):
        await runs.delete("run-2")
    assert [run.id for run in await runs.ended_before(LATER, 9)] == ["run-1"]
    assert await runs.delete("run-1") is True
    await runs.update("run-2", None, state=RunState.LOST)
    assert await runs.delete("run-2") is False


async def test_change_and_its_events_are_stored_atomically(store: Store, runs: RunStore) -> None:
    log = await EventLog.open(store)
    await keep(store, a_run(1))

    def stage_events(run: Run) -> list[NewEvent]:
        return [NewEvent("run/run-1", EventType.RUN_STAGE, {"stage": run.stage}, "default", LATER)] * 2

    changed = await log.write_with_events(runs.update_work("run-1", None, stage=RunStage.WATCH), stage_events)
    assert changed.stage is RunStage.WATCH
    assert [(event.number, event.data, event.at) for event in await log.read("run/run-1")] == [
        (1, {"stage": "watch"}, LATER),
        (2, {"stage": "watch"}, LATER),
    ]

    def broken(run: Run) -> list[NewEvent]:
        raise InvalidInput("no")

    with pytest.raises(InvalidInput):
        await log.write_with_events(runs.update_work("run-1", None, stage=RunStage.RELEASE), broken)
    assert (await runs.get("run-1")).stage is RunStage.WATCH
    log.close()
