"""Overhead of a run compared with bubblewrap and the agent alone, measured in one run.

Rounds are interleaved, so that noise of the machine affects all candidates.  Agents ask a model that follows a script.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp

import collect
from paddock.errors import PaddockError
from paddock.sandbox.images import ImageStore
from support.commands import run_command as run_program
from support.result_table import ResultTable, measure_awaitable
from support.task_server import (
    AGENT,
    AGENT_TASK,
    TRIVIAL_TASK,
    ObservedRun,
    RunBatch,
    TaskServer,
    agent_launch_plan,
    median_stage_durations,
    scripted_model_settings,
)

PARTS = ("overhead", "ready", "crowd", "agents", "collect")
IMAGE = f"agent-{AGENT}"
OVERHEAD = 300.0
"""Milliseconds."""
READY = 1.3
MEGABYTE = 10**6


def add_stage_rows(table: ResultTable, runs: list[ObservedRun]) -> None:
    for name, seconds in median_stage_durations(runs):
        table.add(f"    {name}", seconds * 1e3, "ms")


async def measure_run_overhead(table: ResultTable, server: TaskServer, rounds: int) -> None:
    """Measure a task that does nothing, from the request for its run until its end is known."""
    bwrap_times: list[float] = []
    runs: list[ObservedRun] = []
    for turn in range(rounds + 3):
        bwrap = await measure_awaitable(run_program("bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"))
        observed = await server.run_task(TRIVIAL_TASK)
        if turn >= 3:  # Earlier turns are warm-up.
            bwrap_times.append(bwrap)
            runs.append(observed)
    run_time = statistics.median(run.seconds for run in runs) * 1e3
    by_bwrap = statistics.median(bwrap_times) * 1e3
    table.add("bwrap true", by_bwrap, "ms")
    table.add("a run of true", run_time, "ms", against="bwrap true", ratio=run_time / by_bwrap)
    add_stage_rows(table, runs)
    row = "overhead of a run"
    table.add(row, run_time - by_bwrap, "ms", bar=f"<= {OVERHEAD:.0f} ms")
    table.check_bar(row, run_time - by_bwrap, OVERHEAD)


async def measure_agent_start(table: ResultTable, server: TaskServer, images: ImageStore, rounds: int) -> None:
    """Measure an agent, from the request for its run to its first model request."""
    image = await images.resolve_async(IMAGE)
    plan = agent_launch_plan(image)
    alone: list[float] = []
    ours: list[float] = []
    runs: list[ObservedRun] = []
    for turn in range(rounds + 1):
        handle = await server.create_agent_sandbox(image, plan)
        started = await server.start_agent(handle, plan)
        first_alone = await server.first_model_request_time(sandbox=handle) - started
        await server.delete_all_sandboxes()
        observed = await server.run_task(AGENT_TASK)
        first = await server.first_model_request_time(run=observed.id) - observed.requested_at
        if turn:
            alone.append(first_alone)
            ours.append(first)
            runs.append(observed)
    handle = await server.create_agent_sandbox(image, plan)
    peak = await server.peak_agent_memory(handle, plan)
    await server.delete_all_sandboxes()
    by_itself, took = statistics.median(alone), statistics.median(ours)
    if max(alone) > 1.5 * min(alone):
        spread = f"{min(alone) * 1e3:.0f} to {max(alone) * 1e3:.0f} ms"
        print(f"! the machine is not quiet: {AGENT} alone took {spread}; the ratio says little", flush=True)
    table.add(f"{AGENT} alone, start to first request", by_itself * 1e3, "ms")
    row = f"{AGENT} by a run, asked to first request"
    ratio = took / by_itself
    table.add(row, took * 1e3, "ms", against="alone", ratio=ratio, bar=f"<= {READY} x alone")
    table.check_bar(row, ratio, READY)
    least = min(ours) / min(alone)
    table.add("    the quickest", min(ours) * 1e3, "ms", against="the quickest alone", ratio=least)
    add_stage_rows(table, runs)
    # A run begins to watch once its agent has been started.
    table.add("    agent started", statistics.median(run.stages["watch"] for run in runs) * 1e3, "ms")
    table.add(f"memory of {AGENT}, largest", peak / MEGABYTE, "MB")


def add_batch_rows(table: ResultTable, title: str, batch: RunBatch, count: int, succeeded: int) -> None:
    table.add(title, float(succeeded), "runs", bar=f"= {count}, none lost")
    table.check_bar(title, succeeded, count, at_least=True)
    table.add("    a second", count / batch.seconds, "runs")
    table.add("    a minute", 60 * count / batch.seconds, "runs")
    table.add("    CPU of the server, each", batch.server_cpu / count * 1e3, "ms")
    table.add("    CPU of what launches sandboxes, each", batch.sandbox_cpu / count * 1e3, "ms")
    table.add("    CPU of paddock run, each", batch.command_cpu / count * 1e3, "ms")


async def measure_trivial_batch(table: ResultTable, server: TaskServer, count: int) -> None:
    """Measure many runs of a task that does nothing."""
    batch = await server.run_batch(TRIVIAL_TASK, count, 16)
    add_batch_rows(table, f"{count} trivial, 16 at a time", batch, count, batch.count_succeeded())


async def measure_agent_batch(table: ResultTable, server: TaskServer, count: int) -> None:
    """Measure many runs of an agent, each of which must deliver a file."""
    batch = await server.run_batch(AGENT_TASK, count, 4)
    delivered = [run for run in batch.runs if len((run.get("result") or {}).get("deliverables", ())) == 1]
    add_batch_rows(table, f"{count} {AGENT}, 4 at a time", batch, count, min(batch.count_succeeded(), len(delivered)))


async def measure_collection(table: ResultTable, scratch: Path, rounds: int) -> None:
    """Measure the collection of deliverables."""
    speeds = await collect.measure_collection(scratch, rounds)
    table.add("sha256 alone, one core", speeds.hashing, "MB/s")
    table.add("tar | tar, the same files", speeds.tar, "MB/s")
    row = f"collect {collect.FILES} files, {collect.SIZE / MEGABYTE:.0f} MB"
    ratio = speeds.collect / speeds.tar
    table.add(
        row, speeds.collect, "MB/s", against="tar | tar", ratio=ratio, bar=f">= {collect.REQUIRED_SPEED:.0f} MB/s"
    )
    table.check_bar(row, speeds.collect, collect.REQUIRED_SPEED, at_least=True)


async def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=20, help="runs of a task that does nothing")
    arguments.add_argument("--quick", action="store_true", help="few repetitions, as a smoke test")
    arguments.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts to measure")
    arguments.add_argument("--images", type=Path, default=Path("~/.paddock/images").expanduser())
    arguments.add_argument("--json", type=Path, help="also write the figures to this file")
    options = arguments.parse_args()
    table = ResultTable()
    images = ImageStore(options.images)
    host = await images.resolve_async("host")
    if {"ready", "agents"} & set(options.only):
        print(f"image {IMAGE} …", flush=True)
        await images.build_async(IMAGE, lambda step: None)
    async with AsyncExitStack() as running:
        scratch = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="paddock-bench-")))
        if {"collect"} != set(options.only):
            print("paddock serve …", flush=True)
            server = await running.enter_async_context(
                TaskServer.start(scratch / "paddock", options.images, host, llm=scripted_model_settings(scratch))
            )
            parts = {
                "overhead": lambda: measure_run_overhead(table, server, 5 if options.quick else options.rounds),
                "ready": lambda: measure_agent_start(
                    table, server, images, 1 if options.quick else max(3, options.rounds // 4)
                ),
                "crowd": lambda: measure_trivial_batch(table, server, 20 if options.quick else 200),
                "agents": lambda: measure_agent_batch(table, server, 4 if options.quick else 50),
            }
            for name in (name for name in parts if name in options.only):
                print(f"{name} …", flush=True)
                await parts[name]()
        if "collect" in options.only:
            print("collect …", flush=True)
            await measure_collection(table, scratch / "collect", 1 if options.quick else 3)
    return table.report(options.json)


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main()))
    except (aiohttp.ClientError, PaddockError, RuntimeError, TimeoutError) as error:
        sys.exit(f"error: {error}")
