from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from paddock.errors import QuotaExceeded, TooLarge
from paddock.mcp.gateway.limits import CallRates, ConcurrencyGates
from paddock.model.mcp import McpServer
from tests.support.in_memory_mcp_server import text_result
from tests.unit.mcp.gateway.gateway_harness import CALLER, open_gateway

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def limited(**limits: object) -> McpServer:
    return McpServer.model_validate({"name": "wiki", "url": "https://wiki.example/mcp", "limits": limits})


async def test_calls_at_once_are_bounded_and_others_wait_their_turn() -> None:
    async with open_gateway(limited(concurrency=2)) as harness:
        server = harness.servers["wiki"]
        server.gate.clear()
        calls = [asyncio.ensure_future(harness.call("wiki", "search", n=n)) for n in range(5)]
        while server.count("tools/call") < 2:
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        assert server.count("tools/call") == 2
        calls[3].cancel()
        server.gate.set()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [isinstance(each, str) for each in results] == [True, True, True, False, True]
        assert server.count("tools/call") == 4
        assert harness.gateway.limits.gates._gates == {}


async def test_who_waits_too_long_is_refused() -> None:
    gates = ConcurrencyGates(wait=0.01)
    await gates.acquire("a", 1, "The MCP server wiki")
    with pytest.raises(QuotaExceeded, match="The MCP server wiki has 1 calls under way"):
        await gates.acquire("a", 1, "The MCP server wiki")
    gates.release("a")
    await gates.acquire("a", 1, "")
    gates.release("a")
    assert gates._gates == {}


async def test_a_place_is_not_lost_when_the_waiting_call_ends_at_that_moment() -> None:
    gates = ConcurrencyGates()
    await gates.acquire("a", 1, "")
    waiting = asyncio.ensure_future(gates.acquire("a", 1, ""))
    await asyncio.sleep(0)
    gates.release("a")
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert gates.active("a") == 0


async def test_calls_per_minute_are_those_of_each_caller() -> None:
    async with open_gateway(limited(calls_per_minute=3)) as harness:
        for _ in range(3):
            await harness.call("wiki", "search")
        with pytest.raises(QuotaExceeded, match=r"may have 3 calls per minute; try again in \d+ seconds"):
            await harness.call("", "wiki_search")
        assert await harness.tool_names("wiki") == ["search"]
        assert await harness.call("wiki", "search", replace(CALLER, caller="other")) == "search {}"


def test_rates_recover_after_a_minute() -> None:
    now = 0.0
    rates = CallRates(lambda: now)
    for _ in range(10):
        rates.count("a", 10, "A caller")
    with pytest.raises(QuotaExceeded):
        rates.count("a", 10, "A caller")
    now = 90.0  # Half of the last minute's calls still count.
    for _ in range(5):
        rates.count("a", 10, "A caller")
    with pytest.raises(QuotaExceeded):
        rates.count("a", 10, "A caller")
    now = 600.0
    rates.count("a", 10, "A caller")


async def test_single_tools_have_limits_under_their_own_name() -> None:
    server = McpServer.model_validate(
        {
            "name": "wiki",
            "url": "https://wiki.example/mcp",
            "tools": {"rename": {"search": "find"}},
            "limits": {"tools": {"sea*": {"calls_per_minute": 1}}},
        }
    )
    async with open_gateway(server) as harness:
        harness.servers["wiki"].tools["get"] = {}
        await harness.call("wiki", "find")
        with pytest.raises(QuotaExceeded, match="A caller of the tool search may have 1 calls per minute"):
            await harness.call("wiki", "find")
        await harness.call("wiki", "get")


@pytest.mark.parametrize("setting", ["tenant_limits", "sandbox_limits"])
async def test_tenants_and_sandboxes_have_limits_across_servers(setting: str) -> None:
    async with open_gateway("a", "b", **{setting: {"calls_per_minute": 2}}) as harness:
        context = replace(CALLER, sandbox="s1", origin="chat")
        await harness.call("a", "search", context)
        await harness.call("b", "search", context)
        with pytest.raises(QuotaExceeded):
            await harness.call("a", "search", replace(context, caller="other"))
        other = replace(context, sandbox="s2", tenant="other")
        await harness.call("a", "search", other)


async def test_sizes_are_bounded() -> None:
    async with open_gateway(limited(request_size=2000, response_size=5000)) as harness:

        async def answer(name: str, arguments: object, context: object) -> dict[str, object]:
            return text_result("x" * 10_000)

        with pytest.raises(TooLarge, match="request to the MCP server wiki is larger than 2000 bytes"):
            await harness.call("wiki", "search", text="x" * 2000)
        assert harness.servers["wiki"].count("tools/call") == 0
        harness.servers["wiki"].on_call = answer
        with pytest.raises(TooLarge, match="response of the MCP server wiki is larger than 5000 bytes"):
            await harness.call("wiki", "search")


async def test_a_flood_of_notifications_ends_the_call() -> None:
    async with open_gateway(limited(response_size=5000)) as harness:
        harness.servers["wiki"].progress = 10**6
        with pytest.raises(TooLarge):
            await harness.ask("wiki", "tools/call", {"name": "search", "_meta": {"progressToken": 1}})
        assert harness.gateway.limits.gates._gates == {}
