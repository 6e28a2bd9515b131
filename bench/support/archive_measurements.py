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

from support.gateway_table import GatewayTable
from support.gateways import Gateway
from support.load_client import CHAT_PATH, LoadClient, chat_request, wait_until_idle

MEGABYTE = 10**6
_VOCABULARY = (
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


def used_bytes(data: Path) -> int:
    """Return disk bytes of a data directory: used database pages, including the WAL, and other files."""
    total = sum(path.stat().st_size for path in data.rglob("*") if path.is_file() and ".db" not in path.name)
    for path in _databases(data):
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            names = ("page_count", "freelist_count", "page_size")
            pages, free, size = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
            total += (pages - free) * size
    return total


def count_archived_exchanges(data: Path) -> int | None:
    """Return the number of archived exchanges, or None without an archive."""
    for path in _databases(data):
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            if connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'exchanges'").fetchone():
                return int(connection.execute("SELECT count(*) FROM exchanges").fetchone()[0])
    return None


async def wait_for_archive(gateway: Gateway) -> None:
    """Wait until the archive has flushed its pending writes."""
    assert gateway.data is not None
    await wait_until_idle(gateway, patience=600)
    before = -1
    while (now := used_bytes(gateway.data)) != before:
        before = now
        await asyncio.sleep(1)


def _hold_conversation(gateway: Gateway, turns: int, *, stream: bool) -> int:
    """Hold a conversation in which each request repeats all messages; return the size of the last request."""
    words = random.Random(turns + stream)
    messages: list[dict[str, object]] = [{"role": "system", "content": " ".join(words.choices(_VOCABULARY, k=600))}]
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)
    size = 0
    for turn in range(turns):
        messages.append({"role": "user", "content": f"{turn}: {' '.join(words.choices(_VOCABULARY, k=120))}"})
        body = json.dumps({**chat_request(stream=stream), "messages": messages})
        size = len(body)
        headers = {"Authorization": f"Bearer {gateway.key}", "Content-Type": "application/json"}
        connection.request("POST", CHAT_PATH, body, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        if answer.status != 200:
            raise RuntimeError(f"turn {turn}: {answer.status} {text[:500]}")
        messages.append({"role": "assistant", "content": _response_text(text, stream=stream)})
    connection.close()
    return size


def _response_text(text: str, *, stream: bool) -> str:
    if not stream:
        return str(json.loads(text)["choices"][0]["message"]["content"])
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    return "".join(choice["delta"].get("content") or "" for event in events for choice in event["choices"])


async def check_nothing_lost(table: GatewayTable, gateway: Gateway, requested: int) -> None:
    """Check that the archive has all requests; dropped ones must not count as fast."""
    assert gateway.data is not None
    await wait_for_archive(gateway)
    kept = count_archived_exchanges(gateway.data)
    if kept is not None:
        table.check_bar("exchanges kept of those that were asked", kept / requested, " x", 1, at_least=True)


async def measure_conversation_size(table: GatewayTable, gateway: Gateway, turns: int) -> None:
    """Compare the archived size of a conversation with its last request, which contains all messages once."""
    assert gateway.data is not None
    for stream in (False, True):
        await wait_for_archive(gateway)
        before = used_bytes(gateway.data)
        last = await asyncio.to_thread(_hold_conversation, gateway, turns, stream=stream)
        await wait_for_archive(gateway)
        grown = used_bytes(gateway.data) - before
        how = "streamed" if stream else "not streamed"
        table.add(f"{turns} turns, {how}: last request", gateway.name, last / 1e3, "kB")
        table.add(f"{turns} turns, {how}: archived", gateway.name, grown / 1e3, "kB")
        if grown < last / 10:
            raise RuntimeError("the archive has kept next to nothing of a conversation: is it on?")
        table.check_bar(f"{turns} turns archived, {how} / last request", grown / last, " x", 3)


async def measure_memory(table: GatewayTable, gateway: Gateway, client: LoadClient, requests: int) -> None:
    """Measure memory after a fifth of the requests and after all, and check that the archive is complete."""
    assert gateway.data is not None
    before = count_archived_exchanges(gateway.data) or 0
    await client(gateway, CHAT_PATH, chat_request(), connections=32, requests=requests // 5)
    await wait_for_archive(gateway)
    early = gateway.resident_memory()
    started = time.perf_counter()
    rest = requests - requests // 5
    await client(gateway, CHAT_PATH, chat_request(), connections=32, requests=rest)
    await wait_until_idle(gateway, patience=600)
    took = time.perf_counter() - started
    await wait_for_archive(gateway)
    late = gateway.resident_memory()
    table.add(f"memory after {requests // 5:,} requests", gateway.name, early / MEGABYTE, "MB")
    table.add(f"memory after {requests:,} requests", gateway.name, late / MEGABYTE, "MB")
    table.add(f"{rest:,} requests until all is written", gateway.name, rest / took, "req/s")
    bound = max(20.0, 0.1 * early / MEGABYTE)
    table.check_bar(
        f"memory grown from {requests // 5:,} to {requests:,} requests", (late - early) / MEGABYTE, " MB", bound
    )
    kept = count_archived_exchanges(gateway.data)
    if kept is not None:
        table.check_bar(f"exchanges kept of {requests:,}", (kept - before) / requests, " x", 1, at_least=True)
