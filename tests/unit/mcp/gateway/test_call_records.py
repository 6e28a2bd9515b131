from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from paddock.errors import Forbidden, Unavailable
from paddock.events.event_log import EventLog
from paddock.mcp.gateway import call_records
from paddock.model.mcp import McpServer
from paddock.model.mcp_records import McpCallOutcome, McpCallRecord
from paddock.model.owners import TenantView
from paddock.store.database import Store
from paddock.store.mcp_call_store import McpCallFilters, McpCallStore
from tests.support.in_memory_mcp_server import text_result
from tests.unit.mcp.gateway.gateway_harness import CALLER, GatewayHarness, open_gateway

pytestmark = pytest.mark.anyio
ALL = McpCallFilters()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def recorded(harness: GatewayHarness, calls: McpCallStore) -> list[McpCallRecord]:
    await harness.recorder.flush()
    return list(reversed(await calls.list_calls("default", McpCallFilters())))


async def test_every_call_leaves_a_record(tmp_path: Path) -> None:
    async with await Store.open(tmp_path / "paddock.db") as store:
        calls = McpCallStore(store)
        denied = McpServer(name="wiki", url="https://w/", tools={"deny": ["delete"]})
        async with open_gateway(denied, "other", store=calls, events=await EventLog.open(store)) as harness:
            server = harness.servers["wiki"]
            server.tools["delete"] = {}
            server.prompts["greet"] = "Hello"
            server.resources["file:///a"] = "text"
            context = replace(CALLER, names=("ada",), agent="codex", run="r1", origin="run")
            await harness.call("", "wiki_search", context, q="apples")
            with pytest.raises(Forbidden):
                await harness.call("wiki", "delete")
            await harness.ask("wiki", "tools/call", {"name": "unknown"})
            await harness.ask("wiki", "prompts/get", {"name": "greet"})
            await harness.ask("wiki", "resources/read", {"uri": "file:///a"})

            async def fail(name: str, arguments: object, context: object) -> dict[str, object]:
                return {**text_result("it broke"), "isError": True}

            server.on_call = fail
            await harness.call("wiki", "search")
            server.failure = Unavailable("connection refused")
            with pytest.raises(Unavailable):
                await harness.call("wiki", "search")
            server.failure = None
            server.gate.clear()
            calling = asyncio.ensure_future(harness.call("wiki", "search"))
            while server.requests[-1][0].params_object().get("name") != "search":
                await asyncio.sleep(0)
            for _ in range(10):
                await asyncio.sleep(0)
            calling.cancel()
            await asyncio.gather(calling, return_exceptions=True)
            found = await recorded(harness, calls)
        assert [(each.method, each.target, each.outcome.value) for each in found] == [
            ("tools/call", "search", "ok"),
            ("tools/call", "delete", "refused"),
            ("tools/call", "unknown", "error"),
            ("prompts/get", "greet", "ok"),
            ("resources/read", "file:///a", "ok"),
            ("tools/call", "search", "tool_error"),
            ("tools/call", "search", "error"),
            ("tools/call", "search", "cancelled"),
        ]
        first = found[0]
        assert (first.caller, first.caller_name, first.agent, first.run, first.origin) == (
            "key1",
            "ada",
            "codex",
            "r1",
            "run",
        )
        assert first.arguments == '{"q":"apples"}' and "search {'q': 'apples'}" in first.result
        assert first.tokens == 6 and first.response_size > 50 and first.request_size > 20 and first.duration > 0
        assert found[1].error is not None and "tools.deny" in found[1].error
        assert found[6].error == "connection refused"
        assert harness.recorder.outcomes["wiki", McpCallOutcome.OK] == 3


async def test_secrets_are_masked_and_long_texts_are_cut(tmp_path: Path) -> None:
    async with await Store.open(tmp_path / "paddock.db") as store:
        calls = McpCallStore(store)
        async with open_gateway("wiki", store=calls, record_size=2000) as harness:
            harness.recorder.mask = lambda text: text.replace("hunter2-secret", "**************")

            async def answer(name: str, arguments: object, context: object) -> dict[str, object]:
                # The secret is where the text is cut.
                return text_result("x" * 1925 + "hunter2-secret" + "y" * 100_000)

            harness.servers["wiki"].on_call = answer
            await harness.call("wiki", "search", password="hunter2-secret")
            (found,) = await recorded(harness, calls)
        assert "hunter" not in found.arguments + found.result
        assert found.arguments == '{"password":"**************"}'
        assert len(found.result) == 2001 and found.result.endswith("…")
        assert found.response_size > 100_000 and found.tokens > 25_000


async def test_a_failing_database_delays_no_call_and_loses_no_record(tmp_path: Path) -> None:
    async with await Store.open(tmp_path / "paddock.db") as store:
        calls = McpCallStore(store)
        async with open_gateway("wiki", store=calls) as harness:
            working = calls.insert

            async def fail(records: object) -> None:
                raise Unavailable("the disk is full")

            calls.insert = fail  # type: ignore[method-assign]
            assert await harness.call("wiki", "search") == "search {}"
            await harness.recorder.flush()
            assert await calls.count() == 0
            calls.insert = working  # type: ignore[method-assign]
            await harness.recorder.flush()
            assert await calls.count() == 1


async def test_callers_see_their_own_calls_unless_they_see_the_tenant(tmp_path: Path) -> None:
    async with await Store.open(tmp_path / "paddock.db") as store:
        calls = McpCallStore(store)
        async with open_gateway("wiki", "tracker", store=calls) as harness:
            for caller, tenant, server in (
                ("a", "default", "wiki"),
                ("b", "default", "tracker"),
                ("a", "other", "wiki"),
            ):
                await harness.call(server, "search", replace(CALLER, caller=caller, tenant=tenant, run="r1"))
            await harness.recorder.flush()

        async def seen(view: str, filters: McpCallFilters = ALL, *, of_visible_object: bool = False) -> list[str]:
            records = await calls.list_calls(view, filters, of_visible_object=of_visible_object)
            return [f"{each.tenant} {each.caller}" for each in records]

        assert await seen("default") == ["default b", "default a"]
        assert await seen(TenantView("default", "a", sees_all=False)) == ["default a"]
        own = TenantView("default", "c", sees_all=False)
        assert await seen(own) == []
        assert await seen(own, McpCallFilters(run="r1"), of_visible_object=True) == ["default b", "default a"]
        assert await seen("default", McpCallFilters(server="wiki")) == ["default a"]
        assert await seen("other") == ["other a"]
        newest, oldest = await calls.list_calls("default", McpCallFilters())
        assert await calls.list_calls("default", McpCallFilters(), before=newest.id) == [oldest]
        assert await calls.list_of_run("default", "r1") == [oldest, newest]


async def test_a_sandbox_cannot_fill_the_disk_with_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_records, "MAX_FULL_RECORDS", 2)
    monkeypatch.setattr(call_records, "MAX_RECORDS", 4)
    async with await Store.open(tmp_path / "paddock.db") as store:
        calls = McpCallStore(store)
        async with open_gateway("wiki", store=calls) as harness:
            for n in range(8):
                await harness.call("wiki", "search", replace(CALLER, sandbox="s1", origin="chat"), n=n)
            await harness.call("wiki", "search", replace(CALLER, sandbox="s2", origin="chat"), n=9)
            found = await recorded(harness, calls)
        assert [each.arguments for each in found] == ['{"n":0}', '{"n":1}', "", "", '{"n":9}']
        assert harness.recorder.outcomes["wiki", McpCallOutcome.OK] == 9
