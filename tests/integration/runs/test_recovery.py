"""Recovery from a killed server: the next server continues its runs without losing or repeating work."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from paddock.app.server import PaddockServer
from paddock.model.events import EventType
from paddock.model.runs import RunStage, RunState

from .run_service_support import (
    TENANT,
    ServerProcess,
    assert_nothing_left,
    events_of,
    open_server,
    task,
    wait_for_stage,
    wait_until_ended,
)

pytestmark = pytest.mark.anyio
WORK = "echo begun >> log.txt; for n in 1 2 3 4 5 6 7 8; do echo line $n; sleep 0.05; done; echo done >> log.txt"
LINES = [f"line {number}" for number in range(1, 9)]


async def check_outcome(paddock: PaddockServer, run_id: str) -> None:
    run = await wait_until_ended(paddock, await paddock.runs.get(TENANT, run_id))
    assert run.state is RunState.SUCCEEDED and run.attempt == 1, run.result
    folder = paddock.runs.dependencies.run_folder(run.id)
    assert (folder.deliverables / "log.txt").read_text() == "begun\ndone\n"
    assert (folder.logs / "agent.out").read_text().splitlines() == LINES
    events = await events_of(paddock, run)
    output = "".join(event.data["text"] for event in events if event.type is EventType.RUN_OUTPUT)
    assert output.split() == " ".join(LINES).split()
    for kind in (EventType.RUN_DELIVERED, EventType.RUN_CHECKED, EventType.RUN_ENDED, EventType.RUN_STARTED):
        assert len([event for event in events if event.type is kind]) == 1, kind
    entered = [event.data["stage"] for event in events if event.type is EventType.RUN_STAGE]
    assert entered == [stage for stage in RunStage if stage is not RunStage.ADMIT]
    assert len(folder.events.read_text().splitlines()) == len(events)


def is_at(event: Mapping[str, Any], stage: RunStage) -> bool:
    if stage is RunStage.ADMIT:
        return bool(event["type"] == EventType.RUN_QUEUED)
    return bool(event["type"] == EventType.RUN_STAGE and event["data"]["stage"] == stage)


@pytest.mark.parametrize("stage", list(RunStage))
async def test_run_continues_after_its_server_was_killed(tmp_path: Path, stage: RunStage) -> None:
    run_id = ""
    async with ServerProcess(tmp_path) as server:
        server.submit(task(WORK, deliverables="log.txt", verify="sleep 0.2"))
        async for event in server.events():
            if is_at(event, stage):
                run_id = event["stream"].removeprefix("run/")
                break
        await server.kill()
    async with open_server(tmp_path) as paddock:
        await check_outcome(paddock, run_id)
        await assert_nothing_left(paddock)


async def test_twenty_active_runs_all_end_after_a_server_kill(tmp_path: Path) -> None:
    ids: set[str] = set()
    watching: set[str] = set()
    async with ServerProcess(tmp_path, runs={"parallel": 20}) as server:
        for _ in range(20):
            server.submit(task(WORK, deliverables="log.txt", verify="sleep 0.2"))
        async for event in server.events():
            ids.add(event["stream"].removeprefix("run/"))
            if event["data"].get("stage") == RunStage.WATCH:
                watching.add(event["stream"])
            if len(ids) == 20 and len(watching) >= 10:
                break
        await server.kill()
    async with open_server(tmp_path, runs={"parallel": 20}) as paddock:
        await asyncio.gather(*(check_outcome(paddock, run_id) for run_id in ids))
        assert (await paddock.runs.list(TENANT))[1] == 20
        await assert_nothing_left(paddock)


async def test_next_server_continues_runs_of_a_stopped_server(tmp_path: Path) -> None:
    async with open_server(tmp_path) as paddock:
        run = await paddock.runs.submit(TENANT, task(WORK, deliverables="log.txt", verify="true"))
        await wait_for_stage(paddock, run, RunStage.WATCH)
    async with open_server(tmp_path) as paddock:
        await check_outcome(paddock, run.id)
        await assert_nothing_left(paddock)


async def test_cancellation_survives_a_server_restart(tmp_path: Path) -> None:
    async with open_server(tmp_path, runs={"grace": 30}) as paddock:
        run = await paddock.runs.submit(TENANT, task("trap '' INT TERM; while :; do sleep 0.05; done"))
        await wait_for_stage(paddock, run, RunStage.WATCH)
        await paddock.runs.cancel(TENANT, run.id, "enough")
    async with open_server(tmp_path, runs={"grace": 0.1}) as paddock:
        run = await wait_until_ended(paddock, run)
        assert run.state is RunState.CANCELLED and run.result is not None and "enough" in run.result.reason
        await assert_nothing_left(paddock)


async def test_sandbox_death_without_a_server_is_detected(tmp_path: Path) -> None:
    async with open_server(tmp_path) as paddock:
        run = await paddock.runs.submit(TENANT, task("sleep 60", deliverables="a.txt"))
        await wait_for_stage(paddock, run, RunStage.WATCH)
        (sandbox,), _ = await paddock.fleet.list(TENANT)
        await paddock.runs.close()
        await paddock.backend.remove(sandbox.id)
    async with open_server(tmp_path) as paddock:
        run = await wait_until_ended(paddock, run)
        assert run.state is RunState.LOST and run.result is not None and run.result.missing
        await assert_nothing_left(paddock)
