"""Limits of connections and bytes: of a sandbox, of its tenant, and across restarts of the server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from paddock.config.network import NetworkConfig
from paddock.model.network import ByteCount, ByteCountScope, ConnectionRefusal
from paddock.network.daily_bytes import DAY_SECONDS, DailyByteCounts
from paddock.store.byte_count_store import ByteCountStore
from paddock.store.database import Store

from .test_relay import Relay, echo, open_relay, read_all, server

__all__ = ["open_relay"]
pytestmark = pytest.mark.anyio
REQUEST = b"GET / HTTP/1.1\r\nHost: site.test\r\n\r\n"


async def request(relay: Relay, port: int) -> bytes:
    """Send an HTTP request, and return what comes back until the end."""
    program = await relay.open("site.test", port)
    await asyncio.get_running_loop().sock_sendall(program, REQUEST)
    return await read_all(program)


async def open_and_use(relay: Relay, port: int) -> socket.socket:
    program = await relay.open("site.test", port)
    await asyncio.get_running_loop().sock_sendall(program, b"x")
    assert await asyncio.get_running_loop().sock_recv(program, 10) == b"x"
    return program


@pytest.mark.parametrize("setting", ["max_connections", "max_tenant_connections"])
async def test_connection_over_a_limit_is_told_which(open_relay: Callable[..., Any], setting: str) -> None:
    async with server(echo) as port, open_relay("allow site.test", **{setting: 2}) as relay:
        kept = [await open_and_use(relay, port) for _ in range(2)]
        answer = await request(relay, port)
        assert answer.startswith(b"HTTP/1.1 429 Too Many Requests\r\n") and f"network.{setting}".encode() in answer
        record = await relay.record()
        assert record.refusal is ConnectionRefusal.LIMIT and f"network.{setting}" in (record.message or "")
        kept[0].close()
        await relay.record(2)
        await open_and_use(relay, port)


@pytest.mark.parametrize("setting", ["max_daily_bytes", "max_tenant_daily_bytes"])
async def test_bytes_of_a_day_are_limited(open_relay: Callable[..., Any], setting: str) -> None:
    async with server(echo) as port, open_relay("allow site.test", **{setting: 1000}) as relay:
        other = await open_and_use(relay, port)
        program = await relay.open("site.test", port)
        await asyncio.get_running_loop().sock_sendall(program, b"x" * 2000)
        await read_all(program)
        assert (await relay.record()).refusal is ConnectionRefusal.LIMIT
        answer = await request(relay, port)
        assert answer.startswith(b"HTTP/1.1 429 ") and f"(network.{setting})".encode() in answer
        # An open connection ends with its next byte.
        await asyncio.get_running_loop().sock_sendall(other, b"y")
        assert await read_all(other) in (b"", b"<reset>", b"y")
        assert (await relay.record(3)).refusal is ConnectionRefusal.LIMIT


@pytest.mark.parametrize("setting", ["max_daily_bytes", "max_tenant_daily_bytes"])
async def test_next_server_continues_the_count(open_relay: Callable[..., Any], setting: str) -> None:
    async with server(echo) as port:
        async with open_relay("allow site.test", **{setting: 1000}) as relay:
            program = await open_and_use(relay, port)
            await asyncio.get_running_loop().sock_sendall(program, b"x" * 2000)
            await read_all(program)
        async with open_relay("allow site.test", **{setting: 1000}) as relay:
            assert (await request(relay, port)).startswith(b"HTTP/1.1 429 ")
        async with open_relay("allow site.test", **{setting: 2**20}) as relay:
            await open_and_use(relay, port)


async def test_counts_end_with_their_day(tmp_path: Path) -> None:
    config = NetworkConfig(max_daily_bytes=10, max_tenant_daily_bytes=15)
    async with await Store.open(tmp_path / "paddock.db") as opened:
        store = ByteCountStore(opened)
        now = datetime.now(UTC).timestamp()
        counts = DailyByteCounts(config, store, lambda: now)
        assert counts.add("sb-1", "t", 9) is None
        assert "network.max_daily_bytes" in (counts.add("sb-1", "t", 1) or "")
        assert counts.add("sb-2", "t", 4) is None
        assert "network.max_tenant_daily_bytes" in (counts.add("sb-2", "t", 1) or "")
        await counts.store(counts.take_changed())
        assert counts.take_changed() == []
        later = DailyByteCounts(config, store, lambda: now + DAY_SECONDS - 1)
        await later.load("sb-1", "t")
        assert later.add("sb-1", "t", 0) and later.add("sb-3", "t", 0)
        next_day = DailyByteCounts(config, store, lambda: now + DAY_SECONDS)
        await next_day.load("sb-1", "t")
        assert next_day.add("sb-1", "t", 1) is None
        await next_day.store(next_day.take_changed())
        found = await store.find(ByteCountScope.SANDBOX, "sb-1")
        assert found is not None and found.bytes == 1
        tomorrow = DailyByteCounts(config, store, lambda: now + 3 * DAY_SECONDS)
        await tomorrow.store([])
        assert await store.find(ByteCountScope.TENANT, "t") is None


async def test_count_of_a_wrong_clock_ends_after_a_day(tmp_path: Path) -> None:
    config = NetworkConfig(max_daily_bytes=10)
    async with await Store.open(tmp_path / "paddock.db") as opened:
        store = ByteCountStore(opened)
        now = datetime.now(UTC)
        future = ByteCount(scope=ByteCountScope.SANDBOX, owner="sb-1", started_at=now + timedelta(days=3000), bytes=10)
        await store.replace([future], now - timedelta(days=1))
        seconds = [now.timestamp()]
        counts = DailyByteCounts(config, store, lambda: seconds[0])
        await counts.load("sb-1", "t")
        assert counts.add("sb-1", "t", 0) is not None
        seconds[0] += DAY_SECONDS
        assert counts.add("sb-1", "t", 0) is None


async def test_connection_floods_are_limited(open_relay: Callable[..., Any]) -> None:
    async with server(echo) as port, open_relay("allow site.test", max_new_per_second=1) as relay:
        for _ in range(60):
            (await relay.open("site.test", port)).close()
        await relay.record(60)
        assert sum(record.refusal is ConnectionRefusal.LIMIT for record in relay.records) >= 50
