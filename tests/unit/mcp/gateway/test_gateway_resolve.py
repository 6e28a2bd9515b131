from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import msgspec
import pytest

from paddock.errors import Conflict, Forbidden, InvalidInput, NotFound, Unavailable
from paddock.mcp.gateway.server_directory import SandboxServers
from paddock.mcp.protocol.messages import decode_message
from paddock.mcp.protocol.revisions import INPUT_REQUIRED
from paddock.model.mcp import McpAccess, McpServer, McpSet, McpToolRules
from tests.support.in_memory_mcp_server import InMemoryMcpServer, stateless_request, text_result
from tests.unit.mcp.gateway.gateway_harness import CALLER, GatewayHarness, open_gateway

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def remote(name: str, **fields: object) -> McpServer:
    return McpServer.model_validate({"name": name, "url": f"https://{name}.example/mcp", **fields})


async def test_a_server_has_its_own_names_at_its_own_path() -> None:
    async with open_gateway("wiki") as harness:
        assert await harness.tool_names("wiki") == ["search"]
        assert await harness.call("wiki", "search", q=1) == "search {'q': 1}"


async def test_unknown_servers_are_named_with_those_that_exist() -> None:
    async with open_gateway("wiki", "tracker") as harness:
        with pytest.raises(NotFound, match="no MCP server 'other' for tenant default; available: tracker, wiki"):
            harness.gateway.resolve("other", CALLER)
        with pytest.raises(NotFound, match="no set of MCP tools 'x'; available: none"):
            harness.gateway.resolve("sets/x", CALLER)


@pytest.mark.parametrize(
    ("access", "reason"),
    [
        ({"tenants": ["research"]}, "tenant default is not in its access.tenants"),
        ({"users": ["ada"]}, "key1 is not in its access.users"),
        ({"agents": ["codex"]}, "a caller that is not an agent of Paddock is not in its access.agents"),
    ],
)
async def test_refusals_say_why(access: dict[str, list[str]], reason: str) -> None:
    async with open_gateway(remote("wiki", access=access)) as harness:
        with pytest.raises(Forbidden, match=reason):
            harness.gateway.resolve("wiki", CALLER)
        with pytest.raises(NotFound, match=f"no MCP server that you may use here: wiki: {reason}"):
            harness.gateway.resolve("", CALLER)
        assert harness.opened == []


async def test_users_agents_and_tenants_are_admitted() -> None:
    access = McpAccess(tenants=("default",), users=("ada",), agents=("codex",))
    async with open_gateway(remote("wiki", access=access)) as harness:
        for context in (replace(CALLER, caller="user:ada"), replace(CALLER, names=("ada", "laptop"))):
            assert await harness.tool_names("wiki", replace(context, agent="codex")) == ["search"]


async def test_programs_need_a_sandbox_and_have_one_connection_each() -> None:
    async with open_gateway(McpServer(name="files", command=("files",)), "wiki") as harness:
        with pytest.raises(Conflict, match="it runs in a sandbox"):
            harness.gateway.resolve("files", CALLER)
        assert await harness.tool_names("") == ["wiki_search"]
        for sandbox in ("one", "two", "one"):
            context = replace(CALLER, sandbox=sandbox, origin="chat")
            assert await harness.tool_names("", context) == ["files_search", "wiki_search"]
        assert sorted(harness.opened) == ["files", "files", "wiki"]


async def test_a_sandbox_reaches_only_what_its_task_names() -> None:
    async with open_gateway("wiki", "tracker") as harness:
        inside = replace(CALLER, origin="sandbox", sandbox="s1")
        with pytest.raises(NotFound):
            harness.gateway.resolve("wiki", inside)
        own = remote("own")
        harness.directory.put_sandbox("s1", SandboxServers(servers={"own": own}, references=frozenset({"wiki"})))
        harness.servers["own"] = InMemoryMcpServer({"add": {}})
        assert await harness.tool_names("", inside) == ["own_add", "wiki_search"]
        with pytest.raises(NotFound, match="no MCP server 'tracker' for this sandbox; available: own, wiki"):
            harness.gateway.resolve("tracker", inside)
        with pytest.raises(NotFound):
            harness.gateway.resolve("own", replace(inside, sandbox="s2"))
        harness.gateway.forget_sandbox("s1")
        with pytest.raises(NotFound):
            harness.gateway.resolve("own", inside)


async def test_rules_hold_on_lists_and_on_calls() -> None:
    rules = McpToolRules(allow=("search", "get_*"), deny=("get_secret",), rename={"search": "find"})
    async with open_gateway(remote("wiki", tools=rules)) as harness:
        harness.servers["wiki"].tools = {name: {} for name in ("search", "get_page", "get_secret", "delete", "find")}
        assert await harness.tool_names("wiki") == ["find", "get_page"]
        assert await harness.call("wiki", "find") == "search {}"
        for tool, reason in {
            "get_secret": "it is in tools.deny",
            "delete": "it is not in tools.allow",
            "search": "is offered as find",
        }.items():
            with pytest.raises(Forbidden, match=reason):
                await harness.call("wiki", tool)
        assert harness.servers["wiki"].count("tools/call") == 1


@pytest.mark.parametrize(
    "params",
    [
        b'{"name": "delete", "name": "search"}',
        b'{"name": "search", "Name": "delete"}',
        b'{"name": "search", "NAME": "delete"}',
        b'{"name": ["delete"]}',
        b"{}",
    ],
)
async def test_disguised_names_do_not_reach_a_server(params: bytes) -> None:
    async with open_gateway(remote("wiki", tools={"deny": ["delete"]})) as harness:
        harness.servers["wiki"].tools["delete"] = {}
        for path in ("wiki", ""):
            request = decode_message(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":' + params + b"}")
            try:
                async for _ in harness.gateway.resolve(path, CALLER).exchange(request, CALLER):
                    pass
            except (InvalidInput, Forbidden):
                pass
        for received, _ in harness.servers["wiki"].requests:
            if received.method == "tools/call":
                assert isinstance(received.params, msgspec.Raw)
                pairs = json.loads(bytes(received.params), object_pairs_hook=list)
                assert [value for key, value in pairs if key.lower() == "name"] == ["search"]


async def test_bytes_of_arguments_arrive_unchanged() -> None:
    rules = McpToolRules(rename={"search": "find"})
    async with open_gateway(remote("wiki", tools=rules)) as harness:
        arguments = b'{"n": 12345678901234567890, "f": 1.10, "z": {"b": 1, "a": 2}}'
        request = decode_message(
            b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wiki_find","arguments":'
            + arguments
            + b"}}"
        )
        async for _ in harness.gateway.resolve("", CALLER).exchange(request, CALLER):
            pass
        received = next(each for each, _ in harness.servers["wiki"].requests if each.method == "tools/call")
        assert isinstance(received.params, msgspec.Raw)
        assert arguments in bytes(received.params)


async def test_names_of_the_aggregate_do_not_change_when_servers_are_added() -> None:
    async with open_gateway("wiki") as harness:
        before = await harness.tool_names("")
        harness.directory.put("default", remote("aaa"))
        harness.servers["aaa"] = InMemoryMcpServer({"search": {}, "x.y": {}})
        after = await harness.tool_names("")
        assert before == ["wiki_search"] and set(before) < set(after) and after == sorted(after)
        assert await harness.call("", after[1]) == "x.y {}" and await harness.call("", "aaa_search") == "search {}"


async def test_tenants_do_not_see_each_others_servers() -> None:
    async with open_gateway("wiki") as harness:
        harness.directory.put("one", remote("own"))
        assert [each.name for each in harness.gateway.usable_servers(replace(CALLER, tenant="one"))] == ["own", "wiki"]
        assert [each.name for each in harness.gateway.usable_servers(CALLER)] == ["wiki"]
        # A tenant cannot take the name of a server of the configuration.
        harness.directory.put("one", remote("wiki", url="https://evil.example/mcp"))
        found = harness.directory.find("wiki", replace(CALLER, tenant="one"))
        assert found.source == "file"


async def test_a_dead_server_keeps_its_tools_and_says_why_on_call() -> None:
    async with open_gateway("tracker", "wiki") as harness:
        assert await harness.tool_names("") == ["tracker_search", "wiki_search"]
        harness.servers["tracker"].failure = Unavailable("connection refused")
        for connection in harness.gateway.pool.entries.values():
            harness.gateway.connection(connection.declared, CALLER).lists.invalidate()
        listed = await harness.ask("", "tools/list")
        assert [tool["name"] for tool in listed["tools"]] == ["tracker_search", "wiki_search"]
        assert listed["_meta"]["paddock/missing"] == [
            {"server": "tracker", "reason": "connection refused", "listed": True}
        ]
        with pytest.raises(Unavailable, match="connection refused"):
            await harness.call("", "tracker_search")
        assert await harness.call("", "wiki_search") == "search {}"


async def test_a_slow_server_does_not_delay_the_others() -> None:
    async with open_gateway("tracker", "wiki", list_timeout=0.05) as harness:
        harness.servers["tracker"].gate.clear()
        listed = await harness.ask("", "tools/list")
        assert [tool["name"] for tool in listed["tools"]] == ["wiki_search"]
        assert "may be starting" in listed["_meta"]["paddock/missing"][0]["reason"]
        with pytest.raises(Unavailable, match="tracker cannot be used: the server has not answered yet"):
            await harness.call("", "tracker_other")
        harness.servers["tracker"].gate.set()
        while await harness.tool_names("") != ["tracker_search", "wiki_search"]:
            await asyncio.sleep(0)


async def test_when_no_server_answers_the_list_is_an_error_with_reasons() -> None:
    async with open_gateway("tracker", "wiki") as harness:
        for server in harness.servers.values():
            server.failure = Unavailable("no route to host")
        with pytest.raises(Unavailable, match="tracker: no route to host; wiki: no route to host"):
            await harness.tool_names("")


async def test_unknown_tools_are_errors_of_the_protocol() -> None:
    async with open_gateway("wiki") as harness:
        for name in ("wiki_nothing", "other_search", "search", ""):
            assert (await harness.ask("", "tools/call", {"name": name}))["error"]["code"] == -32602
        assert (await harness.ask("", "tasks/get"))["error"]["code"] == -32601


async def test_private_lists_are_not_shared_between_callers() -> None:
    async with open_gateway("wiki") as harness:
        server = harness.servers["wiki"]
        server.cache_scope = "private"
        other = replace(CALLER, caller="key2")
        assert await harness.tool_names("") == ["wiki_search"]
        server.tools = {"mine": {}}
        assert await harness.tool_names("", other) == ["wiki_mine"]
        assert await harness.tool_names("") == ["wiki_search"]
        assert server.count("tools/list") == 2


async def test_public_lists_are_fetched_once_for_all_callers() -> None:
    async with open_gateway("wiki") as harness:
        callers = [replace(CALLER, caller=f"key{i}") for i in range(20)]
        await harness.tool_names("", callers[0])
        await asyncio.gather(*(harness.tool_names("", caller) for caller in callers))
        assert harness.servers["wiki"].count("tools/list") == 1


async def test_pages_of_a_server_are_put_together_and_its_own_path_keeps_them() -> None:
    async with open_gateway("wiki") as harness:
        server = harness.servers["wiki"]
        server.tools, server.page_size = {f"t{i}": {} for i in range(25)}, 10
        assert len(await harness.tool_names("")) == 25
        assert (await harness.ask("wiki", "tools/list"))["nextCursor"] == "10"


async def test_long_lists_of_the_aggregate_have_pages() -> None:
    async with open_gateway("wiki") as harness:
        harness.servers["wiki"].tools = {f"t{i:05}": {} for i in range(4500)}
        names: list[str] = []
        params: dict[str, str] = {}
        while True:
            page = await harness.ask("", "tools/list", params)
            names += [tool["name"] for tool in page["tools"]]
            if "nextCursor" not in page:
                break
            params = {"cursor": page["nextCursor"]}
        assert names == [f"wiki_t{i:05}" for i in range(4500)]
        with pytest.raises(InvalidInput, match="is not a cursor"):
            await harness.ask("", "tools/list", {"cursor": "x"})


async def test_resources_and_prompts_of_all_servers() -> None:
    async with open_gateway("a", "b") as harness:
        a, b = harness.servers["a"], harness.servers["b"]
        a.resources = {"file:///one": "from a", "file:///same": "a's"}
        b.resources = {"file:///same": "b's"}
        b.templates = ["db://{table}/rows"]
        b.prompts = {"greet": "Hello"}
        listed = [each["uri"] for each in (await harness.ask("", "resources/list"))["resources"]]
        assert listed == ["file:///one", "file:///same", "paddock+b+file:///same"]
        for uri, text in {
            "file:///one": "from a",
            "file:///same": "a's",
            "paddock+b+file:///same": "b's",
            "db://users/rows": "made by a template",
        }.items():
            contents = (await harness.ask("", "resources/read", {"uri": uri}))["contents"]
            assert contents == [{"uri": uri, "text": text}]
        assert (await harness.ask("", "resources/read", {"uri": "no://where"}))["error"]["code"] == -32602
        assert [each["name"] for each in (await harness.ask("", "prompts/list"))["prompts"]] == ["b_greet"]
        messages = (await harness.ask("", "prompts/get", {"name": "b_greet"}))["messages"]
        assert messages[0]["content"]["text"] == "Hello"
        reference = {"type": "ref/prompt", "name": "b_greet"}
        completion = await harness.ask("", "completion/complete", {"ref": reference, "argument": {}})
        assert "'greet'" in completion["completion"]["values"][0]


async def test_input_required_and_progress_pass_through_the_aggregate() -> None:
    async with open_gateway("wiki") as harness:
        server = harness.servers["wiki"]
        server.progress = 2

        async def ask(name: str, arguments: object, context: object) -> dict[str, object]:
            return {"resultType": INPUT_REQUIRED, "requestState": "opaque==", "inputRequests": {"a": {}}}

        server.on_call = ask
        params = {"name": "wiki_search", "_meta": {"progressToken": 7}}
        messages = await harness.messages("", "tools/call", params)
        assert [each.get("progress") for each in messages] == [1, 2, None]
        assert messages[0]["progressToken"] == 7 and messages[-1]["requestState"] == "opaque=="
        params = {"name": "wiki_search", "requestState": "opaque==", "inputResponses": {"a": {}}}
        server.on_call = None
        await harness.ask("", "tools/call", params)
        assert server.requests[-1][0].params_object()["requestState"] == "opaque=="


async def test_sets_are_virtual_servers() -> None:
    chosen = McpSet.model_validate(
        {"name": "triage", "servers": {"tracker": {"deny": ["delete"], "rename": {"search": "find"}}, "wiki": {}}}
    )
    async with open_gateway("tracker", "wiki", sets=(chosen,)) as harness:
        harness.servers["tracker"].tools = {"search": {}, "delete": {}, "list": {}}
        assert await harness.tool_names("sets/triage") == ["find", "tracker_list", "wiki_search"]
        assert await harness.call("sets/triage", "find") == "search {}"
        assert await harness.call("sets/triage", "tracker_list") == "list {}"
        for hidden in ("tracker_delete", "tracker_search"):
            assert (await harness.ask("sets/triage", "tools/call", {"name": hidden}))["error"]["code"] == -32602
        assert await harness.tool_names("") == ["tracker_delete", "tracker_list", "tracker_search", "wiki_search"]


async def test_a_set_does_not_widen_access() -> None:
    chosen = McpSet.model_validate({"name": "all", "servers": ["wiki"]})
    async with open_gateway(remote("wiki", access={"users": ["ada"]}), sets=(chosen,)) as harness:
        with pytest.raises(Forbidden, match=r"wiki may not be used: key1 is not in its access\.users"):
            harness.gateway.resolve("sets/all", CALLER)


async def test_changes_of_lists_reach_those_who_listen_to_all() -> None:
    async with open_gateway("tracker", "wiki") as harness:
        await harness.tool_names("")
        wanted = {"notifications": {"toolsListChanged": True}}
        stream = harness.gateway.resolve("", CALLER).exchange(stateless_request("subscriptions/listen", wanted), CALLER)
        acknowledged = await anext(stream)
        assert acknowledged.params_object()["notifications"] == {"toolsListChanged": True}
        while not harness.servers["wiki"].listeners:
            await asyncio.sleep(0)
        harness.servers["wiki"].tools["new"] = {}
        harness.servers["wiki"].notify("notifications/prompts/list_changed")
        harness.servers["wiki"].notify("notifications/tools/list_changed")
        async with asyncio.timeout(5):
            told = await anext(stream)
        assert told.method == "notifications/tools/list_changed"
        assert told.params_object()["_meta"] == {"io.modelcontextprotocol/subscriptionId": 1}
        assert await harness.tool_names("") == ["tracker_search", "wiki_new", "wiki_search"]
        await stream.aclose()


async def test_updates_of_resources_come_from_their_servers() -> None:
    async with open_gateway("a", "b") as harness:
        harness.servers["b"].resources = {"file:///x": ""}
        await harness.ask("", "resources/list")
        wanted = {"notifications": {"resourceSubscriptions": ["file:///x", "file:///unknown"]}}
        stream = harness.gateway.resolve("", CALLER).exchange(stateless_request("subscriptions/listen", wanted), CALLER)
        acknowledged = await anext(stream)
        assert acknowledged.params_object()["notifications"] == {"resourceSubscriptions": ["file:///x"]}
        told = asyncio.ensure_future(anext(stream))
        while harness.servers["b"].listeners < 2:
            await asyncio.sleep(0)
        harness.servers["b"].notify("notifications/resources/updated", uri="file:///x")
        assert (await asyncio.wait_for(told, 5)).params_object()["uri"] == "file:///x"
        await stream.aclose()
        while harness.servers["b"].listeners > 1:
            await asyncio.sleep(0)


async def test_closing_a_call_cancels_it_at_the_server() -> None:
    async with open_gateway("wiki") as harness:
        await harness.tool_names("")
        for path, tool in (("wiki", "search"), ("", "wiki_search")):
            server = harness.servers["wiki"]
            server.gate.clear()
            before = server.cancelled
            calling = asyncio.ensure_future(harness.call(path, tool))
            while server.requests[-1][0].method != "tools/call":
                await asyncio.sleep(0)
            calling.cancel()
            await asyncio.gather(calling, return_exceptions=True)
            assert server.cancelled == before + 1
            server.gate.set()
            server.requests.append((stateless_request("ping"), CALLER))


async def test_connections_close_when_idle_and_when_declarations_change() -> None:
    async with open_gateway("wiki", idle_timeout=0.02) as harness:
        await harness.call("wiki", "search")
        while not harness.servers["wiki"].closed:
            await asyncio.sleep(0.005)
        assert not harness.gateway.pool.entries

    async with open_gateway() as other:
        other.directory.put("default", remote("wiki"))
        other.servers["wiki"] = first = InMemoryMcpServer({"search": {}})
        await other.call("wiki", "search")
        other.directory.put("default", remote("wiki", url="https://new.example/mcp"))
        other.servers["wiki"] = InMemoryMcpServer({"found": {}})
        assert await other.tool_names("wiki") == ["found"]
        while not first.closed:
            await asyncio.sleep(0)


async def test_a_call_under_way_survives_a_changed_declaration() -> None:
    async with open_gateway() as harness:
        harness.directory.put("default", remote("wiki"))
        harness.servers["wiki"] = first = InMemoryMcpServer({"search": {}})
        first.gate.clear()
        calling = asyncio.ensure_future(harness.call("wiki", "search"))
        while not first.requests:
            await asyncio.sleep(0)
        harness.directory.put("default", remote("wiki", url="https://new.example/mcp"))
        harness.servers["wiki"] = InMemoryMcpServer({"found": {}})
        assert await harness.tool_names("wiki") == ["found"]
        assert not first.closed
        first.gate.set()
        assert await calling == "search {}"


async def test_500_sandboxes_share_one_connection() -> None:
    async with open_gateway("wiki") as harness:

        async def work(name: str, arguments: object, context: object) -> dict[str, object]:
            await asyncio.sleep(0)
            return text_result("done")

        harness.servers["wiki"].on_call = work
        contexts = [replace(CALLER, origin="sandbox", sandbox=f"s{i}", caller=f"key{i % 50}") for i in range(500)]
        for context in contexts:
            assert context.sandbox is not None
            harness.directory.put_sandbox(context.sandbox, SandboxServers(references=frozenset({"wiki"})))
        results = await asyncio.gather(*(harness.call("", "wiki_search", context) for context in contexts))
        assert results == ["done"] * 500
        assert harness.opened == ["wiki"]
        assert {context.sandbox for request, context in harness.servers["wiki"].requests} >= {"s0", "s499"}


async def test_a_warm_list_of_1000_tools_takes_few_milliseconds() -> None:
    names = [f"server{i:02}" for i in range(20)]
    async with open_gateway(*names) as harness:
        schema = {"type": "object", "properties": {"query": {"type": "string", "description": "What to find."}}}
        for server in harness.servers.values():
            server.tools = {
                f"tool_{i}": {"description": "Does one thing well." * 5, "inputSchema": schema} for i in range(50)
            }
        assert len(await harness.tool_names("")) == 1000

        async def listed() -> float:
            started = asyncio.get_running_loop().time()
            async for message in harness.gateway.resolve("", CALLER).exchange(stateless_request("tools/list"), CALLER):
                assert message.is_response
            return asyncio.get_running_loop().time() - started

        assert min([await listed() for _ in range(20)]) <= 0.005


def test_harness_has_no_servers_of_its_own() -> None:
    assert GatewayHarness().servers == {}
