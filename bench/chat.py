"""Overhead of a chat compared with the same model request through the proxy, in one run.

Rounds are interleaved, so that a noisy machine is noisy for everybody. Models follow scripts; sandboxes are real.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp

from gateways import cpu_of
from paddock.errors import PaddockError
from paddock.sandbox.images import ImageStore
from sandbox import Table
from talks import BUSY, LONG, RARE, SHORT, TOKENS, Chats, fill, scripted

PARTS = ("first", "tokens", "viewers", "crowd", "events", "search")
ENGINES = ("langgraph", "agentscope")
VIEWERS = 200
SESSIONS = 50
EVENTS = 5000
MESSAGES = 100_000
ADDED = 20.0
LATE = 250.0
SOON = 100.0
"""Milliseconds, all three."""


async def first(table: Table, server: Chats, rounds: int) -> None:
    """From a message to the first word of the answer, next to the same request sent straight to the proxy."""
    sessions = {engine: await server.begin(agent=engine, model=SHORT) for engine in ENGINES}
    straight: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    through: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    for turn in range(rounds + 3):
        for engine, session in sessions.items():
            took = await server.through(session, f"Good morning, {turn}.")
            alone = await server.asked(await server.last_request(session))
            if turn >= 3:  # Earlier turns are warm-up.
                through[engine].append(took)
                straight[engine].append(alone)
    for engine, session in sessions.items():
        took, alone = (statistics.median(each[engine]) * 1e3 for each in (through, straight))
        what = f"first word, {engine}"
        bar = 1.2 * alone + ADDED
        table.add(f"the same request straight to the proxy, {engine}", alone, "ms")
        table.add(what, took, "ms", against="straight", ratio=took / alone, bar=f"<= {bar:.1f} ms (1.2 x + 20)")
        table.judge(what, took, bar)
        await server.end(session)


async def tokens(table: Table, server: Chats, rounds: int) -> None:
    """Measure the server's CPU time of a long answer."""
    session = await server.begin(model=LONG)
    await server.straight(LONG, "Go on.")
    await server.through(session, "Go on.")
    spent: dict[str, list[float]] = {"straight": [], "through": []}
    for _ in range(rounds):
        before = cpu_of(server.process)
        await server.straight(LONG, "Go on.")
        between = cpu_of(server.process)
        await server.through(session, "Go on.")
        spent["straight"].append(between - before)
        spent["through"].append(cpu_of(server.process) - between)
    alone, took = (statistics.median(spent[name]) / TOKENS * 1e6 for name in ("straight", "through"))
    table.add("server CPU per 1,000 tokens, straight", alone, "ms")
    table.add("server CPU per 1,000 tokens, in a chat", took, "ms", against="straight", ratio=took / alone)
    await server.end(session)


async def viewers(table: Table, server: Chats, seconds: float) -> None:
    """Measure idle viewers of an idle session."""
    session = await server.begin(model=SHORT)

    async def look() -> None:
        async for _ in server.view(session):
            pass

    looking = [asyncio.create_task(look()) for _ in range(VIEWERS)]
    await asyncio.sleep(2)
    before = cpu_of(server.process)
    await asyncio.sleep(seconds)
    share = (cpu_of(server.process) - before) / seconds * 100
    for task in looking:
        task.cancel()
    await asyncio.gather(*looking, return_exceptions=True)
    what = f"{VIEWERS} idle viewers"
    table.add(what, share, "% of a core", bar="< 5 % of a core")
    table.judge(what, share, 5)
    await server.end(session)


async def crowd(table: Table, server: Chats, engine: str, count: int, seconds: float) -> None:
    """Measure sessions with one tool call per second and one viewer each."""
    sessions = [await server.begin(agent=engine, model=BUSY) for _ in range(count)]
    late: list[float] = []
    results = 0
    measuring = asyncio.Event()

    async def look(session: str) -> None:
        nonlocal results
        async for lateness, event in server.view(session):
            if measuring.is_set():
                late.append(lateness)
                results += event["type"] == "call.result" and not event["data"]["result"]["failed"]

    looking = [asyncio.create_task(look(session)) for session in sessions]
    for session in sessions:
        await server._call("POST", f"/sessions/{session}/messages", json={"text": "Look around."})
    async with asyncio.timeout(120):
        while not all([(await server.get(f"/sessions/{session}"))["sandboxes"] for session in sessions]):
            await asyncio.sleep(0.5)
    await asyncio.sleep(3)
    measuring.set()
    before = cpu_of(server.process)
    await asyncio.sleep(seconds)
    measuring.clear()
    used = (cpu_of(server.process) - before) / seconds * 100
    for task in looking:
        task.cancel()
    await asyncio.gather(*looking, return_exceptions=True)
    for session in sessions:
        await server.end(session)
    if results < count * seconds / 3:
        raise RuntimeError(f"{count} sessions had {results} results of tools in {seconds:.0f} s; that is no crowd")
    ordered = sorted(late)
    p99 = ordered[int(len(ordered) * 0.99)] * 1e3
    what = f"{count} sessions on {engine}, an event late by p99"
    table.add(f"  tool calls a second, {engine}", results / seconds, "")
    table.add(f"  server CPU, {engine}", used, "% of a core")
    table.add(what, p99, "ms", bar=f"<= {LATE:.0f} ms")
    table.judge(what, p99, LATE)


async def opening(table: Table, server: Chats, session: str, rounds: int) -> None:
    """The first page of a long session."""
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        page = await server.get(f"/sessions/{session}/events", limit="1000")
        took.append(time.perf_counter() - began)
        assert len(page["items"]) == 1000
    what = f"first page of {EVENTS:,} events"
    table.add(what, statistics.median(took) * 1e3, "ms", bar=f"< {SOON:.0f} ms")
    table.judge(what, statistics.median(took) * 1e3, SOON)


async def search(table: Table, server: Chats, rounds: int) -> None:
    """Words that are nowhere else, and words that are everywhere."""
    for name, words in (("a rare word", RARE), ("two common words", "quarter invoice"), ("no such word", "xylophone")):
        took = []
        for _ in range(rounds):
            began = time.perf_counter()
            found = (await server.get("/sessions/search", q=words))["items"]
            took.append(time.perf_counter() - began)
            assert bool(found) != (words == "xylophone"), (words, len(found))
        what = f"search {MESSAGES:,} messages: {name}"
        table.add(what, statistics.median(took) * 1e3, "ms", bar=f"< {SOON:.0f} ms")
        table.judge(what, statistics.median(took) * 1e3, SOON)


async def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=30)
    arguments.add_argument("--seconds", type=float, default=15, help="how long crowds and viewers are watched")
    arguments.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="what to measure")
    arguments.add_argument("--images", type=Path, default=Path("~/.paddock/images").expanduser())
    arguments.add_argument("--json", type=Path, help="write the figures here too")
    options = arguments.parse_args()
    table = Table()
    images = ImageStore(options.images)
    host = await images.resolve_async("host")
    async with AsyncExitStack() as running:
        scratch = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="paddock-bench-")))
        data = scratch / "paddock"
        long = ""
        if {"events", "search"} & set(options.only):
            print(f"{MESSAGES:,} messages …", flush=True)
            long = await fill(data, MESSAGES, EVENTS)
        print("paddock serve …", flush=True)
        settings: dict[str, Any] = {
            "llm": scripted(scratch),
            "kinds": {"code": {"image": "host"}},
            "sandboxes": {"min_free_disk": 0},
        }
        server = await running.enter_async_context(Chats.start(data, options.images, host, **settings))
        parts = {
            "events": lambda: opening(table, server, long, options.rounds),
            "search": lambda: search(table, server, options.rounds),
            "first": lambda: first(table, server, options.rounds),
            "tokens": lambda: tokens(table, server, max(3, options.rounds // 5)),
            "viewers": lambda: viewers(table, server, options.seconds),
            "crowd": lambda: crowds(table, server, options.seconds),
        }
        for name in (name for name in parts if name in options.only):
            print(f"{name} …", flush=True)
            await parts[name]()
    return table.finish(options.json)


async def crowds(table: Table, server: Chats, seconds: float) -> None:
    for engine in ENGINES:
        await crowd(table, server, engine, SESSIONS, seconds)


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main()))
    except (aiohttp.ClientError, PaddockError, RuntimeError, TimeoutError) as error:
        sys.exit(f"error: {error}")
