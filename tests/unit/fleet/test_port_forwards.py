"""Direct endpoints: limits per sandbox and tenant, and behaviour at the limits."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from paddock.errors import QuotaExceeded, Unavailable
from paddock.fleet import direct_connections as module
from paddock.fleet.port_forwards import EXECD_PORT, PortForwards
from paddock.model.sandbox import DaemonAddress

pytestmark = pytest.mark.anyio
PORTS = range(31_000, 31_900)
TOKEN = b"X-EXECD-ACCESS-TOKEN: 0123456789abcdef\n"


@asynccontextmanager
async def daemon() -> AsyncIterator[DaemonAddress]:
    """Serve a daemon that echoes lines, and stays silent otherwise."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield DaemonAddress(token="0123456789abcdef", host="127.0.0.1", port=server.sockets[0].getsockname()[1])


@asynccontextmanager
async def opened(forwards: PortForwards) -> AsyncIterator[PortForwards]:
    try:
        yield forwards
    finally:
        await forwards.close()


async def echoed(port: int, line: bytes = b"hello\n") -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(line)
    try:
        return await asyncio.wait_for(reader.readline(), 5)
    finally:
        writer.close()


async def open_all(forwards: PortForwards, address: DaemonAddress) -> None:
    for port in range(1, 500):
        await forwards.open("a", "one", port, address)


async def test_endpoints_per_sandbox_and_tenant_are_limited() -> None:
    quotas = {"a": 3, "b": None}
    async with daemon() as address, opened(PortForwards(PORTS, per_sandbox=2, per_tenant=quotas.get)) as forwards:
        first = await forwards.open("a", "one", 1, address)
        assert await forwards.open("a", "one", 1, address) == first
        await forwards.open("a", "one", 2, address)
        with pytest.raises(QuotaExceeded, match=r"sandboxes\.max_endpoints"):
            await forwards.open("a", "one", 3, address)
        await forwards.open("a", "two", 1, address)
        with pytest.raises(QuotaExceeded, match=r"quotas\.endpoints"):
            await forwards.open("a", "two", 2, address)
        assert await forwards.open("b", "other", 1, address)
        assert await echoed(await forwards.open("a", "one", EXECD_PORT, address)) == b"hello\n"
        await forwards.close("one")
        await forwards.open("a", "two", 2, address)


async def test_unused_endpoint_is_closed_for_a_new_one() -> None:
    async with daemon() as address, opened(PortForwards(PORTS, per_sandbox=2, unused=0)) as forwards:
        daemons = await forwards.open("a", "one", EXECD_PORT, address)
        first, second = [await forwards.open("a", "one", port, address) for port in (1, 2)]
        third = await forwards.open("a", "one", 3, address)
        assert third not in (first, second)  # A client that remembers the closed one must not reach another port.
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", first)
        _, writer = await asyncio.open_connection("127.0.0.1", second)
        writer.close()
        assert await echoed(daemons) == b"hello\n"


async def test_unused_endpoint_of_other_tenant_is_closed_without_free_ports() -> None:
    async with daemon() as address, opened(PortForwards(range(31_900, 31_902), unused=0)) as forwards:
        daemons = await forwards.open("a", "one", EXECD_PORT, address)
        unused = await forwards.open("a", "one", 1, address)
        assert await forwards.open("b", "other", EXECD_PORT, address) == unused
        assert await echoed(unused) == b"hello\n"
        assert await echoed(daemons) == b"hello\n"
        with pytest.raises(Unavailable, match="every port"):
            await forwards.open("b", "other", 1, address)


async def test_requested_again_endpoint_is_not_closed_for_new_one() -> None:
    async with daemon() as address, opened(PortForwards(PORTS, per_sandbox=2, unused=0.2)) as forwards:
        first, _ = [await forwards.open("a", "one", port, address) for port in (1, 2)]
        await asyncio.sleep(0.3)
        assert await forwards.open("a", "one", 1, address) == first
        await forwards.open("a", "one", 3, address)
        _, writer = await asyncio.open_connection("127.0.0.1", first)
        writer.close()


async def test_unanswered_connections_are_dropped_for_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CONNECTIONS", 4)
    async with daemon() as address, opened(PortForwards(PORTS)) as forwards:
        port = await forwards.open("a", "one", EXECD_PORT, address)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(TOKEN)
        assert await reader.readline() == TOKEN
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(10)]
        assert await echoed(port) == b"hello\n"
        assert await asyncio.wait_for(silent[0][0].read(), 5) == b""
        writer.write(b"still\n")
        assert await asyncio.wait_for(reader.readline(), 5) == b"still\n"
        for _, other in silent:
            other.close()
        writer.close()


async def test_too_many_connections_are_refused_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CONNECTIONS", 1)
    async with daemon() as address, opened(PortForwards(PORTS)) as forwards:
        port = await forwards.open("a", "one", EXECD_PORT, address)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(TOKEN)
        await reader.readline()
        refused, other = await asyncio.open_connection("127.0.0.1", port)
        answer = await asyncio.wait_for(refused.read(), 5)
        assert answer.startswith(b"HTTP/1.1 503 ") and b"too many direct connections" in answer
        for each in (writer, other):
            each.close()


async def answered(port: int, line: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection and exchange a line over it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(line)
    assert await asyncio.wait_for(reader.readline(), 5) == line
    return reader, writer


async def test_connections_without_token_do_not_block_authenticated_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CONNECTIONS", 8)
    monkeypatch.setattr(module, "MAX_WITHOUT_TOKEN", 4)
    async with daemon() as address, opened(PortForwards(PORTS)) as forwards:
        port = await forwards.open("a", "one", EXECD_PORT, address)
        owners = [await answered(port, TOKEN) for _ in range(3)]
        others = [await answered(port, b"GET /ping\n") for _ in range(20)]
        owners += [await answered(port, TOKEN) for _ in range(5)]
        for reader, writer in owners:
            writer.write(TOKEN)
            assert await asyncio.wait_for(reader.readline(), 5) == TOKEN
        with pytest.raises(AssertionError):  # All are in use by the owner now.
            await answered(port, TOKEN)
        for _, writer in (*owners, *others):
            writer.close()


async def test_idle_connections_to_other_ports_are_closed_for_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TO_OTHER_PORTS", 2)
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.2)
    async with daemon() as address, opened(PortForwards(PORTS)) as forwards:
        port = await forwards.open("a", "one", 8000, address)
        monkeypatch.setattr("paddock.fleet.port_forwards._send_connect_request", no_request)
        first, second = [await answered(port, b"hello\n") for _ in range(2)]
        reader, refused = await asyncio.open_connection("127.0.0.1", port)
        assert await asyncio.wait_for(reader.read(), 5) == b""  # Both are in use.
        await asyncio.sleep(0.3)
        second[1].write(b"still\n")
        await second[0].readline()
        third = await answered(port, b"hello\n")
        assert await asyncio.wait_for(first[0].read(), 5) == b""
        assert await echoed(await forwards.open("a", "one", EXECD_PORT, address)) == b"hello\n"
        for writer in (first[1], second[1], third[1], refused):
            writer.close()


async def test_connections_of_a_tenant_are_limited_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PER_TENANT", 2)
    async with daemon() as address, opened(PortForwards(PORTS)) as forwards:
        ports = [await forwards.open(tenant, f"{tenant}{n}", EXECD_PORT, address) for tenant in "ab" for n in "12"]
        kept = [await answered(port, TOKEN) for port in ports[:2]]
        with pytest.raises(AssertionError):
            await answered(ports[0], TOKEN)
        kept += [await answered(port, TOKEN) for port in ports[2:]]
        for _, writer in kept:
            writer.close()


async def no_request(*_: object) -> None:
    """The daemon of these tests does not know CONNECT."""


async def test_file_descriptors_are_reserved_for_other_uses() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    bound = (max(map(int, os.listdir("/proc/self/fd"))) + 40) * 4 // 3
    async with daemon() as address, opened(PortForwards(PORTS)) as forwards:
        resource.setrlimit(resource.RLIMIT_NOFILE, (bound, hard))
        try:
            with pytest.raises(Unavailable, match="too many open files"):
                await open_all(forwards, address)
            forwards._unused = 0
            assert await forwards.open("b", "other", 1, address)
            spare = [os.open("/dev/null", os.O_RDONLY) for _ in range(bound // 4)]
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in spare:
            os.close(descriptor)
