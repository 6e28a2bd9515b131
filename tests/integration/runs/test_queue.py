"""Queue of runs: capacity, priorities, and waiting for resources."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from paddock.model.events import EventType
from paddock.model.runs import EndedBy, Run, RunResult, RunStage, RunState
from paddock.runs.execution import run_executor

from .run_service_support import (
    TENANT,
    assert_nothing_left,
    events_of,
    open_server,
    task,
    wait_for_stage,
    wait_until_ended,
)

pytestmark = pytest.mark.anyio
SLEEP_COMMAND = "sleep 60"


async def test_queued_runs_start_by_priority_and_can_be_cancelled(tmp_path: Path) -> None:
    async with open_server(tmp_path, runs={"parallel": 1}) as paddock:
        first = await paddock.runs.submit(TENANT, task(SLEEP_COMMAND))
        await wait_for_stage(paddock, first, RunStage.WATCH)
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
        high, low = await wait_until_ended(paddock, high), await wait_until_ended(paddock, low)
        assert high.started_at and low.started_at and high.started_at < low.started_at
        assert (await paddock.runs.cancel(TENANT, low.id)).state is RunState.SUCCEEDED
        await assert_nothing_left(paddock)


async def test_concurrency_limits_of_tasks_and_tenants(tmp_path: Path) -> None:
    async with open_server(tmp_path, runs={"tenant_parallel": 2}) as paddock:
        narrow = task(SLEEP_COMMAND, name="narrow", concurrency=1)
        one, two = [await paddock.runs.submit(TENANT, narrow) for _ in range(2)]
        other = await paddock.runs.submit(TENANT, task(SLEEP_COMMAND))
        remove_then_write = await paddock.runs.submit(TENANT, task(SLEEP_COMMAND))
        elsewhere = await paddock.runs.submit("other", task())
        await wait_for_stage(paddock, one, RunStage.WATCH)
        await wait_for_stage(paddock, other, RunStage.WATCH)
        assert (await wait_until_ended(paddock, elsewhere)).state is RunState.SUCCEEDED
        for waiting in (two, remove_then_write):
            assert (await paddock.runs.get(TENANT, waiting.id)).state is RunState.QUEUED
        for run in (two, remove_then_write, one, other):
            await paddock.runs.cancel(TENANT, run.id, hard=True)
        await asyncio.gather(*(wait_until_ended(paddock, run) for run in (one, two, other, remove_then_write)))
        await assert_nothing_left(paddock)


async def test_run_without_sandbox_quota_is_queued_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_executor, "CAPACITY_RETRY_SECONDS", 0.05)
    async with open_server(tmp_path, quotas={"sandboxes": 1}) as paddock:
        runs = [await paddock.runs.submit(TENANT, task("sleep 0.1")) for _ in range(3)]
        for run in runs:
            done = await wait_until_ended(paddock, run)
            assert done.state is RunState.SUCCEEDED and done.attempt == 1, done.result
            event_types = [event.type for event in await events_of(paddock, run)]
            assert event_types.count(EventType.RUN_STARTED) == 1
        await assert_nothing_left(paddock)


async def test_run_waits_for_disk_space_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_executor, "CAPACITY_RETRY_SECONDS", 0.05)
    monkeypatch.setattr(run_executor, "CAPACITY_WAIT_LIMIT", 0.3)
    async with open_server(tmp_path, sandboxes={"min_free_disk": "900Ti"}) as paddock:
        run = await paddock.runs.submit(TENANT, task())
        while "waiting" not in (run := await paddock.runs.get(TENANT, run.id)).progress:
            await asyncio.sleep(0.01)
        assert "min_free_disk" in run.progress["waiting"]
        run = await wait_until_ended(paddock, run)
        assert run.result is not None and run.state is RunState.FAILED
        assert run.result.ended_by is EndedBy.SETUP and "min_free_disk" in run.result.reason
        await assert_nothing_left(paddock)


async def test_many_concurrent_runs_all_end(tmp_path: Path) -> None:
    async with open_server(tmp_path, runs={"parallel": 16}) as paddock:
        runs = await asyncio.gather(*(paddock.runs.submit(TENANT, task()) for _ in range(40)))
        states = [(await wait_until_ended(paddock, run)).state for run in runs]
        assert states == [RunState.SUCCEEDED] * len(runs)
        await assert_nothing_left(paddock)


async def test_run_removed_during_cancellation_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_server(tmp_path, runs={"parallel": 1}) as paddock:
        first = await paddock.runs.submit(TENANT, task(SLEEP_COMMAND))
        await wait_for_stage(paddock, first, RunStage.WATCH)
        waiting = await paddock.runs.submit(TENANT, task())
        write_result_file = paddock.runs._write_result_file

        async def remove_then_write(run: Run, result: RunResult) -> None:
            await paddock.runs.remove(TENANT, run.id)
            await write_result_file(run, result)

        monkeypatch.setattr(paddock.runs, "_write_result_file", remove_then_write)
        await paddock.runs.cancel(TENANT, waiting.id)
        assert not paddock.runs.dependencies.run_folder(waiting.id).path.exists()
        monkeypatch.undo()
        await paddock.runs.cancel(TENANT, first.id, hard=True)
        await wait_until_ended(paddock, first)


async def test_interrupted_folder_removal_is_completed(tmp_path: Path) -> None:
    async with open_server(tmp_path) as paddock:
        run = await paddock.runs.submit(TENANT, task())
        await wait_until_ended(paddock, run)
        folder = paddock.runs.dependencies.run_folder(run.id).path
    left = folder.with_name(f".{run.id}.0a1b2c3d")
    (left / "deliverables").mkdir(parents=True)
    async with open_server(tmp_path), asyncio.timeout(5):
        while left.exists():
            await asyncio.sleep(0.02)
    assert folder.exists()
