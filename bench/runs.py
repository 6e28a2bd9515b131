"""Overhead of a run compared with bubblewrap and the agent alone, measured in one run.

Rounds are interleaved, so that a noisy machine is noisy for everybody. Agents ask a model that follows a script.
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
from peers import run as run_program
from sandbox import Table, timed
from tasks import AGENT, HELLO, TRIVIAL, Crowd, Runs, Seen, by_hand, middle_of, scripted

PARTS = ("overhead", "ready", "crowd", "agents", "collect")
IMAGE = f"agent-{AGENT}"
OVERHEAD = 300.0
"""Milliseconds."""
READY = 1.3
MEGABYTE = 10**6


def tell_stages(table: Table, runs: list[Seen]) -> None:
    for name, seconds in middle_of(runs):
        table.add(f"    {name}", seconds * 1e3, "ms")


async def overhead(table: Table, server: Runs, rounds: int) -> None:
    """A task that does nothing, from asking for its run to knowing its end."""
    alone: list[float] = []
    runs: list[Seen] = []
    for turn in range(rounds + 3):
        bwrap = await timed(run_program("bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"))
        seen = await server.run(TRIVIAL)
        if turn >= 3:  # Earlier turns are warm-up.
            alone.append(bwrap)
            runs.append(seen)
    took = statistics.median(run.seconds for run in runs) * 1e3
    by_bwrap = statistics.median(alone) * 1e3
    table.add("bwrap true", by_bwrap, "ms")
    table.add("a run of true", took, "ms", against="bwrap true", ratio=took / by_bwrap)
    tell_stages(table, runs)
    what = "overhead of a run"
    table.add(what, took - by_bwrap, "ms", bar=f"<= {OVERHEAD:.0f} ms")
    table.judge(what, took - by_bwrap, OVERHEAD)


async def ready(table: Table, server: Runs, images: ImageStore, rounds: int) -> None:
    """An agent, from asking for its run to its first request to a model."""
    image = await images.resolve_async(IMAGE)
    what = by_hand(image)
    alone: list[float] = []
    ours: list[float] = []
    runs: list[Seen] = []
    for turn in range(rounds + 1):
        handle = await server.sandbox_with(image, what)
        started = await server.start_by_hand(handle, what)
        first_alone = await server.first_request(sandbox=handle) - started
        await server.delete_all()
        seen = await server.run(HELLO)
        first = await server.first_request(run=seen.id) - seen.asked
        if turn:
            alone.append(first_alone)
            ours.append(first)
            runs.append(seen)
    handle = await server.sandbox_with(image, what)
    peak = await server.peak(handle, what)
    await server.delete_all()
    by_itself, took = statistics.median(alone), statistics.median(ours)
    if max(alone) > 1.5 * min(alone):
        spread = f"{min(alone) * 1e3:.0f} to {max(alone) * 1e3:.0f} ms"
        print(f"! the machine is not quiet: {AGENT} alone took {spread}; the ratio says little", flush=True)
    table.add(f"{AGENT} alone, start to first request", by_itself * 1e3, "ms")
    row = f"{AGENT} by a run, asked to first request"
    ratio = took / by_itself
    table.add(row, took * 1e3, "ms", against="alone", ratio=ratio, bar=f"<= {READY} x alone")
    table.judge(row, ratio, READY)
    least = min(ours) / min(alone)
    table.add("    the quickest", min(ours) * 1e3, "ms", against="the quickest alone", ratio=least)
    tell_stages(table, runs)
    # A run begins to watch once its agent has been started.
    table.add("    agent started", statistics.median(run.stages["watch"] for run in runs) * 1e3, "ms")
    table.add(f"memory of {AGENT}, largest", peak / MEGABYTE, "MB")


def tell_crowd(table: Table, title: str, crowd: Crowd, count: int, good: int) -> None:
    table.add(title, float(good), "runs", bar=f"= {count}, none lost")
    table.judge(title, good, count, at_least=True)
    table.add("    a second", count / crowd.seconds, "runs")
    table.add("    a minute", 60 * count / crowd.seconds, "runs")
    table.add("    CPU of the server, each", crowd.server / count * 1e3, "ms")
    table.add("    CPU of what launches sandboxes, each", crowd.sandboxes / count * 1e3, "ms")
    table.add("    CPU of paddock run, each", crowd.command / count * 1e3, "ms")


async def trivial_crowd(table: Table, server: Runs, count: int) -> None:
    """Many runs of a task that does nothing."""
    crowd = await server.crowd(TRIVIAL, count, 16)
    tell_crowd(table, f"{count} trivial, 16 at a time", crowd, count, crowd.succeeded())


async def agent_crowd(table: Table, server: Runs, count: int) -> None:
    """Many runs of an agent, each of which has to bring its file home."""
    crowd = await server.crowd(HELLO, count, 4)
    brought = [run for run in crowd.runs if len((run.get("result") or {}).get("deliverables", ())) == 1]
    tell_crowd(table, f"{count} {AGENT}, 4 at a time", crowd, count, min(crowd.succeeded(), len(brought)))


async def collecting(table: Table, scratch: Path, rounds: int) -> None:
    """Deliverables out of a sandbox."""
    figures = await collect.collecting(scratch, rounds)
    table.add("sha256 alone, one core", figures.hashing, "MB/s")
    table.add("tar | tar, the same files", figures.tar, "MB/s")
    what = f"collect {collect.FILES} files, {collect.SIZE / MEGABYTE:.0f} MB"
    ratio = figures.collect / figures.tar
    table.add(what, figures.collect, "MB/s", against="tar | tar", ratio=ratio, bar=f">= {collect.BAR:.0f} MB/s")
    table.judge(what, figures.collect, collect.BAR, at_least=True)


async def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=20, help="runs of a task that does nothing")
    arguments.add_argument("--quick", action="store_true", help="few of everything, to see that it works")
    arguments.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="what to measure")
    arguments.add_argument("--images", type=Path, default=Path("~/.paddock/images").expanduser())
    arguments.add_argument("--json", type=Path, help="write the figures here too")
    options = arguments.parse_args()
    table = Table()
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
                Runs.start(scratch / "paddock", options.images, host, llm=scripted(scratch))
            )
            parts = {
                "overhead": lambda: overhead(table, server, 5 if options.quick else options.rounds),
                "ready": lambda: ready(table, server, images, 1 if options.quick else max(3, options.rounds // 4)),
                "crowd": lambda: trivial_crowd(table, server, 20 if options.quick else 200),
                "agents": lambda: agent_crowd(table, server, 4 if options.quick else 50),
            }
            for name in (name for name in parts if name in options.only):
                print(f"{name} …", flush=True)
                await parts[name]()
        if "collect" in options.only:
            print("collect …", flush=True)
            await collecting(table, scratch / "collect", 1 if options.quick else 3)
    return table.finish(options.json)


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main()))
    except (aiohttp.ClientError, PaddockError, RuntimeError, TimeoutError) as error:
        sys.exit(f"error: {error}")
