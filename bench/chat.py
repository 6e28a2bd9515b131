"""Overhead of a chat compared with the same model request through the proxy, in one run.

Rounds are interleaved, so that noise of the machine affects all candidates.  Models follow scripts; sandboxes are real.
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

from paddock.errors import PaddockError
from paddock.sandbox.images import ImageStore
from support.chat_server import (
    BUSY_MODEL,
    LONG_MODEL,
    RARE_WORD,
    REPLY_TOKENS,
    SHORT_MODEL,
    ChatServer,
    scripted_model_settings,
    write_sessions,
)
from support.process_usage import process_cpu_seconds
from support.result_table import ResultTable

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


async def measure_first_word(table: ResultTable, server: ChatServer, rounds: int) -> None:
    """Measure the time from a message to the first word of the reply, and that of the same request to the proxy."""
    sessions = {engine: await server.create_session(agent=engine, model=SHORT_MODEL) for engine in ENGINES}
    direct_times: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    chat_times: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    for turn in range(rounds + 3):
        for engine, session in sessions.items():
            elapsed = await server.time_chat_message(session, f"Good morning, {turn}.")
            direct = await server.time_request(await server.last_model_request(session))
            if turn >= 3:  # Earlier turns are warm-up.
                chat_times[engine].append(elapsed)
                direct_times[engine].append(direct)
    for engine, session in sessions.items():
        elapsed, direct = (statistics.median(each[engine]) * 1e3 for each in (chat_times, direct_times))
        row = f"first word, {engine}"
        bar = 1.2 * direct + ADDED
        table.add(f"the same request straight to the proxy, {engine}", direct, "ms")
        table.add(row, elapsed, "ms", against="straight", ratio=elapsed / direct, bar=f"<= {bar:.1f} ms (1.2 x + 20)")
        table.check_bar(row, elapsed, bar)
        await server.delete_session(session)


async def measure_token_cpu(table: ResultTable, server: ChatServer, rounds: int) -> None:
    """Measure the server's CPU time of a long answer."""
    session = await server.create_session(model=LONG_MODEL)
    await server.time_direct_request(LONG_MODEL, "Go on.")
    await server.time_chat_message(session, "Go on.")
    spent: dict[str, list[float]] = {"straight": [], "through": []}
    for _ in range(rounds):
        before = process_cpu_seconds(server.process)
        await server.time_direct_request(LONG_MODEL, "Go on.")
        between = process_cpu_seconds(server.process)
        await server.time_chat_message(session, "Go on.")
        spent["straight"].append(between - before)
        spent["through"].append(process_cpu_seconds(server.process) - between)
    direct, chat = (statistics.median(spent[name]) / REPLY_TOKENS * 1e6 for name in ("straight", "through"))
    table.add("server CPU per 1,000 tokens, straight", direct, "ms")
    table.add("server CPU per 1,000 tokens, in a chat", chat, "ms", against="straight", ratio=chat / direct)
    await server.delete_session(session)


async def measure_idle_viewers(table: ResultTable, server: ChatServer, seconds: float) -> None:
    """Measure idle viewers of an idle session."""
    session = await server.create_session(model=SHORT_MODEL)

    async def follow() -> None:
        async for _ in server.follow_events(session):
            pass

    viewers = [asyncio.create_task(follow()) for _ in range(VIEWERS)]
    await asyncio.sleep(2)
    before = process_cpu_seconds(server.process)
    await asyncio.sleep(seconds)
    share = (process_cpu_seconds(server.process) - before) / seconds * 100
    for task in viewers:
        task.cancel()
    await asyncio.gather(*viewers, return_exceptions=True)
    row = f"{VIEWERS} idle viewers"
    table.add(row, share, "% of a core", bar="< 5 % of a core")
    table.check_bar(row, share, 5)
    await server.delete_session(session)


async def measure_busy_sessions(
    table: ResultTable, server: ChatServer, engine: str, count: int, seconds: float
) -> None:
    """Measure sessions with one tool call per second and one viewer each."""
    sessions = [await server.create_session(agent=engine, model=BUSY_MODEL) for _ in range(count)]
    delays: list[float] = []
    results = 0
    measuring = asyncio.Event()

    async def follow(session: str) -> None:
        nonlocal results
        async for lateness, event in server.follow_events(session):
            if measuring.is_set():
                delays.append(lateness)
                results += event["type"] == "call.result" and not event["data"]["result"]["failed"]

    viewers = [asyncio.create_task(follow(session)) for session in sessions]
    for session in sessions:
        await server._call("POST", f"/sessions/{session}/messages", json={"text": "Look around."})
    async with asyncio.timeout(120):
        while not all([(await server.get_json(f"/sessions/{session}"))["sandboxes"] for session in sessions]):
            await asyncio.sleep(0.5)
    await asyncio.sleep(3)
    measuring.set()
    before = process_cpu_seconds(server.process)
    await asyncio.sleep(seconds)
    measuring.clear()
    used = (process_cpu_seconds(server.process) - before) / seconds * 100
    for task in viewers:
        task.cancel()
    await asyncio.gather(*viewers, return_exceptions=True)
    for session in sessions:
        await server.delete_session(session)
    if results < count * seconds / 3:
        raise RuntimeError(f"{count} sessions had {results} results of tools in {seconds:.0f} s; that is no crowd")
    ordered = sorted(delays)
    p99 = ordered[int(len(ordered) * 0.99)] * 1e3
    row = f"{count} sessions on {engine}, an event late by p99"
    table.add(f"  tool calls a second, {engine}", results / seconds, "")
    table.add(f"  server CPU, {engine}", used, "% of a core")
    table.add(row, p99, "ms", bar=f"<= {LATE:.0f} ms")
    table.check_bar(row, p99, LATE)


async def measure_first_page(table: ResultTable, server: ChatServer, session: str, rounds: int) -> None:
    """Measure the first page of events of a long session."""
    durations = []
    for _ in range(rounds):
        started = time.perf_counter()
        page = await server.get_json(f"/sessions/{session}/events", limit="1000")
        durations.append(time.perf_counter() - started)
        assert len(page["items"]) == 1000
    row = f"first page of {EVENTS:,} events"
    table.add(row, statistics.median(durations) * 1e3, "ms", bar=f"< {SOON:.0f} ms")
    table.check_bar(row, statistics.median(durations) * 1e3, SOON)


async def measure_search(table: ResultTable, server: ChatServer, rounds: int) -> None:
    """Measure searches for rare, common and missing words."""
    for name, query in (
        ("a rare word", RARE_WORD),
        ("two common words", "quarter invoice"),
        ("no such word", "xylophone"),
    ):
        durations = []
        for _ in range(rounds):
            started = time.perf_counter()
            found = (await server.get_json("/sessions/search", q=query))["items"]
            durations.append(time.perf_counter() - started)
            assert bool(found) != (query == "xylophone"), (query, len(found))
        row = f"search {MESSAGES:,} messages: {name}"
        table.add(row, statistics.median(durations) * 1e3, "ms", bar=f"< {SOON:.0f} ms")
        table.check_bar(row, statistics.median(durations) * 1e3, SOON)


async def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=30)
    arguments.add_argument(
        "--seconds", type=float, default=15, help="duration of each measurement of sessions and viewers"
    )
    arguments.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts to measure")
    arguments.add_argument("--images", type=Path, default=Path("~/.paddock/images").expanduser())
    arguments.add_argument("--json", type=Path, help="also write the figures to this file")
    options = arguments.parse_args()
    table = ResultTable()
    images = ImageStore(options.images)
    host = await images.resolve_async("host")
    async with AsyncExitStack() as running:
        scratch = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="paddock-bench-")))
        data = scratch / "paddock"
        long = ""
        if {"events", "search"} & set(options.only):
            print(f"{MESSAGES:,} messages …", flush=True)
            long = await write_sessions(data, MESSAGES, EVENTS)
        print("paddock serve …", flush=True)
        settings: dict[str, Any] = {
            "llm": scripted_model_settings(scratch),
            "kinds": {"code": {"image": "host"}},
            "sandboxes": {"min_free_disk": 0},
        }
        server = await running.enter_async_context(ChatServer.start(data, options.images, host, **settings))
        parts = {
            "events": lambda: measure_first_page(table, server, long, options.rounds),
            "search": lambda: measure_search(table, server, options.rounds),
            "first": lambda: measure_first_word(table, server, options.rounds),
            "tokens": lambda: measure_token_cpu(table, server, max(3, options.rounds // 5)),
            "viewers": lambda: measure_idle_viewers(table, server, options.seconds),
            "crowd": lambda: measure_busy_engines(table, server, options.seconds),
        }
        for name in (name for name in parts if name in options.only):
            print(f"{name} …", flush=True)
            await parts[name]()
    return table.report(options.json)


async def measure_busy_engines(table: ResultTable, server: ChatServer, seconds: float) -> None:
    for engine in ENGINES:
        await measure_busy_sessions(table, server, engine, SESSIONS, seconds)


if __name__ == "__main__":
    try:
        sys.exit(asyncio.run(main()))
    except (aiohttp.ClientError, PaddockError, RuntimeError, TimeoutError) as error:
        sys.exit(f"error: {error}")
