"""Duration of a durable write compared with raw sqlite3 at the same settings, and without flush.

python bench/store.py [DIRECTORY]
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from paddock.events.event_log import EventLog
from paddock.model.events import EventType
from paddock.model.sandbox import Sandbox, SandboxState
from paddock.store.database import Store
from paddock.store.sandbox_store import SandboxStore

ROUNDS = 500
DATA = {"image": "code", "reason": "x" * 40}


def time_raw_inserts(path: Path, synchronous: str) -> list[float]:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, stream TEXT, at TEXT, data TEXT)")
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        connection.execute("BEGIN IMMEDIATE")
        row = ("sandbox/x", datetime.now(UTC).isoformat(), json.dumps(DATA))
        connection.execute("INSERT INTO t (stream, at, data) VALUES (?, ?, ?)", row)
        connection.execute("COMMIT")
        times.append(time.perf_counter() - start)
    connection.close()
    return times


async def time_calls(call: Callable[[int], Awaitable[object]]) -> list[float]:
    times = []
    for index in range(ROUNDS):
        start = time.perf_counter()
        await call(index)
        times.append(time.perf_counter() - start)
    return times


def print_times(name: str, times: list[float], floor: float) -> None:
    milliseconds = sorted(each * 1000 for each in times[20:])
    middle, high = statistics.median(milliseconds), milliseconds[int(len(milliseconds) * 0.95)]
    print(f"{name:42} median {middle:6.3f} ms   95% {high:6.3f} ms   {middle / floor:5.2f} x raw")


def new_sandbox(index: int) -> Sandbox:
    now = datetime.now(UTC)
    return Sandbox(
        id=f"s{index}", tenant="t", backend="local", image="code", state=SandboxState.PENDING,
        created_at=now, changed_at=now, metadata={"a": "b"}, record={"pid": 1},
    )  # fmt: skip


async def main(directory: Path) -> None:
    full = time_raw_inserts(directory / "full.db", "FULL")
    floor = statistics.median(full) * 1000
    print_times("raw sqlite3, synchronous=FULL", full, floor)
    print_times("raw sqlite3, synchronous=NORMAL", time_raw_inserts(directory / "normal.db", "NORMAL"), floor)
    async with await Store.open(directory / "store.db") as store:
        log, sandboxes = await EventLog.open(store), SandboxStore(store)
        print_times(
            "event, append",
            await time_calls(lambda _: log.append("s", EventType.OUT_OF_MEMORY, DATA, tenant="t")),
            floor,
        )
        print_times("sandbox, insert", await time_calls(lambda index: sandboxes.insert(new_sandbox(index))), floor)
        pending, running = [SandboxState.PENDING], SandboxState.RUNNING
        print_times(
            "sandbox, transition", await time_calls(lambda i: sandboxes.transition(f"s{i}", pending, running)), floor
        )
        print_times("sandbox, get", await time_calls(lambda index: sandboxes.get(f"s{index}")), floor)
        for writers in (1, 16, 128):
            count, start = 4096, time.perf_counter()

            async def write(many: int) -> None:
                for _ in range(many):
                    await log.append("s", EventType.OUT_OF_MEMORY, DATA, tenant="t")

            await asyncio.gather(*(write(count // writers) for _ in range(writers)))
            print(f"{writers:4} writers: {count / (time.perf_counter() - start):8.0f} durable events a second")


if __name__ == "__main__":
    with TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as where:
        asyncio.run(main(Path(where)))
