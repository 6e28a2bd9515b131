"""Queue of runs: capacity, priorities, and waiting for resources."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from paddock.model.events import EventType
from paddock.model.runs import EndedBy, Run, RunResult, RunStage, RunState
from paddock.runs.execution import runner

from .run_service_support import TENANT, ended, events_of, machine, nothing_left, seen, task

pytestmark = pytest.mark.anyio
UNTIL_TOLD = "sleep 60"


async def test_one_after_the_other_by_priority_and_a_waiting_one_can_be_cancelled(tmp_path: Path) -> None:
    async with machine(tmp_path, runs={"parallel": 1}) as paddock:
        first = await paddock.runs.submit(TENANT, task(UNTIL_TOLD))
        await seen(paddock, first, RunStage.WATCH)
        low, high, never = [await paddock.runs.submit(TENANT, task(priority=number)) for number in (1, 9, 5)]
        cancelled = await paddock.runs.cancel(TENANT, never.id, "not needed")
        assert cancelled.state is RunState.CANCELLED and cancelled.result is not None
        assert paddock.runs.dependencies.run_folder(never.id).result.exists()
        assert [event.type for event in await events_of(paddock, never)] == [
            EventType.RUN_QUEUED,
            EventType.RUN_CANCELLING,
            EventType.RUN_ENDED,
        ]
        assert (await paddock.runs.get(TENANT, high.id)).state is RunState.QUEUED
        await paddock.runs.cancel(TENANT, first.id, hard=True)
        high, low = await ended(paddock, high), await ended(paddock, low)
        assert high.started_at and low.started_at and high.started_at < low.started_at
        assert (await paddock.runs.cancel(TENANT, low.id)).state is RunState.SUCCEEDED
        await nothing_left(paddock)


async def test_a_task_and_a_tenant_have_their_own_room(tmp_path: Path) -> None:
    async with machine(tmp_path, runs={"tenant_parallel": 2}) as paddock:
        narrow = task(UNTIL_TOLD, name="narrow", concurrency=1)
        one, two = [await paddock.runs.submit(TENANT, narrow) for _ in range(2)]
        other = await paddock.runs.submit(TENANT, task(UNTIL_TOLD))
        late = await paddock.runs.submit(TENANT, task(UNTIL_TOLD))
        elsewhere = await paddock.runs.submit("other", task())
        await seen(paddock, one, RunStage.WATCH)
        await seen(paddock, other, RunStage.WATCH)
        assert (await ended(paddock, elsewhere)).state is RunState.SUCCEEDED
        for waiting in (two, late):
            assert (await paddock.runs.get(TENANT, waiting.id)).state is RunState.QUEUED
        for run in (two, late, one, other):
            await paddock.runs.cancel(TENANT, run.id, hard=True)
        await asyncio.gather(*(ended(paddock, run) for run in (one, two, other, late)))
        await nothing_left(paddock)


async def test_a_run_without_room_for_its_sandbox_goes_back_to_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "CAPACITY_RETRY_SECONDS", 0.05)
    async with machine(tmp_path, quotas={"sandboxes": 1}) as paddock:
        runs = [await paddock.runs.submit(TENANT, task("sleep 0.1")) for _ in range(3)]
        for run in runs:
            done = await ended(paddock, run)
            assert done.state is RunState.SUCCEEDED and done.attempt == 1, done.result
            told = [event.type for event in await events_of(paddock, run)]
            assert told.count(EventType.RUN_STARTED) == 1
        await nothing_left(paddock)


async def test_a_full_host_is_waited_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "CAPACITY_RETRY_SECONDS", 0.05)
    monkeypatch.setattr(runner, "CAPACITY_WAIT_LIMIT", 0.3)
    async with machine(tmp_path, sandboxes={"min_free_disk": "900Ti"}) as paddock:
        run = await paddock.runs.submit(TENANT, task())
        while "waiting" not in (run := await paddock.runs.get(TENANT, run.id)).progress:
            await asyncio.sleep(0.01)
        assert "min_free_disk" in run.progress["waiting"]
        run = await ended(paddock, run)
        assert run.result is not None and run.state is RunState.FAILED
        assert run.result.ended_by is EndedBy.SETUP and "min_free_disk" in run.result.reason
        await nothing_left(paddock)


async def test_many_small_runs_all_end(tmp_path: Path) -> None:
    async with machine(tmp_path, runs={"parallel": 16}) as paddock:
        runs = await asyncio.gather(*(paddock.runs.submit(TENANT, task()) for _ in range(40)))
        states = [(await ended(paddock, run)).state for run in runs]
        assert states == [RunState.SUCCEEDED] * len(runs)
        await nothing_left(paddock)


async def test_a_run_that_is_removed_while_it_is_cancelled_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with machine(tmp_path, runs={"parallel": 1}) as paddock:
        first = await paddock.runs.submit(TENANT, task(UNTIL_TOLD))
        await seen(paddock, first, RunStage.WATCH)
        waiting = await paddock.runs.submit(TENANT, task())
        leave = paddock.runs._write_result_file

        async def late(run: Run, result: RunResult) -> None:
            await paddock.runs.remove(TENANT, run.id)
            await leave(run, result)

        monkeypatch.setattr(paddock.runs, "_write_result_file", late)
        await paddock.runs.cancel(TENANT, waiting.id)
        assert not paddock.runs.dependencies.run_folder(waiting.id).path.exists()
        monkeypatch.undo()
        await paddock.runs.cancel(TENANT, first.id, hard=True)
        await ended(paddock, first)


async def test_what_a_server_was_removing_when_it_died_is_removed(tmp_path: Path) -> None:
    async with machine(tmp_path) as paddock:
        run = await paddock.runs.submit(TENANT, task())
        await ended(paddock, run)
        folder = paddock.runs.dependencies.run_folder(run.id).path
    left = folder.with_name(f".{run.id}.0a1b2c3d")
    (left / "deliverables").mkdir(parents=True)
    async with machine(tmp_path), asyncio.timeout(5):
        while left.exists():
            await asyncio.sleep(0.02)
    assert folder.exists()
