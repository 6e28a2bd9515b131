"""Archive size of a long conversation, and memory growth with the number of requests."""

from __future__ import annotations

import asyncio
import http.client
import json
import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from gateways import Gateway
from loads import CHAT, Client, Table, chat, settle

MEGABYTE = 10**6
_WORDS = (
    "the build fails because a test reads file line column value returns none when empty so we change that function "
    "and run it again now error says module not found import path python package version installed old new check "
    "config option default true false key name list dict string number output input command shell directory"
).split()


def _databases(data: Path) -> Iterator[Path]:
    for path in data.rglob("*"):
        if path.is_file() and path.suffix not in {".db-wal", ".db-shm"}:
            with path.open("rb") as file:
                if file.read(15) == b"SQLite format 3":
                    yield path


def kept_bytes(data: Path) -> int:
    """Return disk bytes of a data directory: used database pages, including the WAL, and other files."""
    total = sum(path.stat().st_size for path in data.rglob("*") if path.is_file() and ".db" not in path.name)
    for path in _databases(data):
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            names = ("page_count", "freelist_count", "page_size")
            pages, free, size = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
            total += (pages - free) * size
    return total


def kept_exchanges(data: Path) -> int | None:
    """How many exchanges the archive holds, or nothing where there is no archive."""
    for path in _databases(data):
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            if connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'exchanges'").fetchone():
                return int(connection.execute("SELECT count(*) FROM exchanges").fetchone()[0])
    return None


async def written(gateway: Gateway) -> None:
    """Wait until the archive has written what it put off."""
    assert gateway.data is not None
    await settle(gateway, patience=600)
    before = -1
    while (now := kept_bytes(gateway.data)) != before:
        before = now
        await asyncio.sleep(1)


def _talk(gateway: Gateway, turns: int, *, stream: bool) -> int:
    """Have a conversation in which each request says everything again, and return the size of the last request."""
    words = random.Random(turns + stream)
    said: list[dict[str, object]] = [{"role": "system", "content": " ".join(words.choices(_WORDS, k=600))}]
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)
    size = 0
    for turn in range(turns):
        said.append({"role": "user", "content": f"{turn}: {' '.join(words.choices(_WORDS, k=120))}"})
        body = json.dumps({**chat(stream=stream), "messages": said})
        size = len(body)
        headers = {"Authorization": f"Bearer {gateway.key}", "Content-Type": "application/json"}
        connection.request("POST", CHAT, body, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        if answer.status != 200:
            raise RuntimeError(f"turn {turn}: {answer.status} {text[:500]}")
        said.append({"role": "assistant", "content": _said_in(text, stream=stream)})
    connection.close()
    return size


def _said_in(text: str, *, stream: bool) -> str:
    if not stream:
        return str(json.loads(text)["choices"][0]["message"]["content"])
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    return "".join(choice["delta"].get("content") or "" for event in events for choice in event["choices"])


async def nothing_lost(table: Table, gateway: Gateway, asked: int) -> None:
    """Return whether the archive has all requests; dropped ones must not count as fast."""
    assert gateway.data is not None
    await written(gateway)
    kept = kept_exchanges(gateway.data)
    if kept is not None:
        table.judge("exchanges kept of those that were asked", kept / asked, " x", 1, at_least=True)


async def conversation(table: Table, gateway: Gateway, turns: int) -> None:
    """The size of a conversation in the archive against the last request, which holds all of it once."""
    assert gateway.data is not None
    for stream in (False, True):
        await written(gateway)
        before = kept_bytes(gateway.data)
        last = await asyncio.to_thread(_talk, gateway, turns, stream=stream)
        await written(gateway)
        grown = kept_bytes(gateway.data) - before
        how = "streamed" if stream else "not streamed"
        table.add(f"{turns} turns, {how}: last request", gateway.name, last / 1e3, "kB")
        table.add(f"{turns} turns, {how}: archived", gateway.name, grown / 1e3, "kB")
        if grown < last / 10:
            raise RuntimeError("the archive has kept next to nothing of a conversation: is it on?")
        table.judge(f"{turns} turns archived, {how} / last request", grown / last, " x", 3)


async def memory(table: Table, gateway: Gateway, client: Client, requests: int) -> None:
    """Memory after a fifth of the requests and after all of them, and whether the archive has kept up."""
    assert gateway.data is not None
    before = kept_exchanges(gateway.data) or 0
    await client(gateway, CHAT, chat(), connections=32, requests=requests // 5)
    await written(gateway)
    early = gateway.memory()
    started = time.perf_counter()
    rest = requests - requests // 5
    await client(gateway, CHAT, chat(), connections=32, requests=rest)
    await settle(gateway, patience=600)
    took = time.perf_counter() - started
    await written(gateway)
    late = gateway.memory()
    table.add(f"memory after {requests // 5:,} requests", gateway.name, early / MEGABYTE, "MB")
    table.add(f"memory after {requests:,} requests", gateway.name, late / MEGABYTE, "MB")
    table.add(f"{rest:,} requests until all is written", gateway.name, rest / took, "req/s")
    bound = max(20.0, 0.1 * early / MEGABYTE)
    table.judge(
        f"memory grown from {requests // 5:,} to {requests:,} requests", (late - early) / MEGABYTE, " MB", bound
    )
    kept = kept_exchanges(gateway.data)
    if kept is not None:
        table.judge(f"exchanges kept of {requests:,}", (kept - before) / requests, " x", 1, at_least=True)
