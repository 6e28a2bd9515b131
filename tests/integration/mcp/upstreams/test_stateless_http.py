"""Connections to servers of revision 2026-07-28 over streamable HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import pytest
from aiohttp import web

from paddock.errors import Forbidden, McpTimeout, TooLarge, Unavailable
from paddock.mcp.protocol import CallContext
from tests.integration.mcp.upstream_servers import Servers, mcp_servers
from tests.integration.mcp.upstreams.scripted_server import (
    ADA,
    BOB,
    ScriptedServer,
    ask,
    call_tool,
    connected,
    json_error,
    json_result,
    messages_of,
    open_stream,
    result_of,
    scripted_server,
    send_event,
    text_result,
)

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def sdk_servers() -> Iterator[Servers]:
    with mcp_servers() as servers:
        yield servers


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as scripted:
        yield scripted


async def test_tools_of_a_real_server_are_listed_and_called(sdk_servers: Servers) -> None:
    async with connected(sdk_servers.calculator) as upstream:
        tools = await result_of(upstream, ask("tools/list"))
        assert {"add", "count"} <= {tool["name"] for tool in tools["tools"]}
        assert (await result_of(upstream, call_tool("add", {"a": 2, "b": 3})))["structuredContent"] == {"result": 5}
        assert upstream.state.status == "ready"
        assert [change.status for change in upstream.health_history] == ["idle", "starting", "ready"]


async def test_progress_of_a_real_server_arrives_before_the_result(sdk_servers: Servers) -> None:
    async with connected(sdk_servers.calculator) as upstream:
        request = call_tool("count", {"to": 3}, _meta={"progressToken": "mine"})
        *notifications, response = await messages_of(upstream, request)
        assert [each.method for each in notifications] == ["notifications/progress"] * 3
        assert [each.params_object()["progressToken"] for each in notifications] == ["mine"] * 3
        assert response.result_object()["structuredContent"] == {"result": "done"}


async def test_required_headers_repeat_the_body(server: ScriptedServer) -> None:
    async def answer(_: web.Request, message: Any) -> web.Response:
        return json_result(message, {"tools": []} if message["method"] == "tools/list" else text_result("ok"))

    server.answer = answer
    async with connected(server.url, headers={"X-Team": "research"}) as upstream:
        await result_of(upstream, call_tool("søk", {"big": 12345678901234567890}))
        await result_of(upstream, ask("resources/read", uri="file:///a b"))
    call, read = server.received[-2:]
    assert call.headers["MCP-Protocol-Version"] == "2026-07-28"
    assert call.headers["Mcp-Method"] == "tools/call"
    assert call.headers["Mcp-Name"] == "=?base64?c8O4aw==?="
    assert call.headers["X-Team"] == "research"
    assert b"12345678901234567890" in call.body
    assert read.headers["Mcp-Name"] == "file:///a b"


def _tools_with_header(name: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": name}}}
    bad = {"type": "object", "properties": {"x": {"type": "number", "x-mcp-header": "X"}}}
    return {"tools": [{"name": "query", "inputSchema": schema}, {"name": "bad", "inputSchema": bad}]}


async def test_annotated_parameters_are_mirrored_as_headers(server: ScriptedServer) -> None:
    async def answer(_: web.Request, message: Any) -> web.Response:
        return json_result(
            message, _tools_with_header("Region") if message["method"] == "tools/list" else text_result("ok")
        )

    server.answer = answer
    async with connected(server.url) as upstream:
        await result_of(upstream, call_tool("query", {"region": "Zürich"}))
        tools = await result_of(upstream, ask("tools/list"))
        await result_of(upstream, call_tool("query", {"region": None}))
    assert server.methods() == ["tools/list", "tools/call", "tools/list", "tools/call"]
    assert server.received[2].headers["Mcp-Param-Region"] == "=?base64?WsO8cmljaA==?="
    assert "Mcp-Param-Region" not in server.received[-1].headers
    assert [tool["name"] for tool in tools["tools"]] == ["query"]  # Invalid annotations hide a tool.


async def test_a_tool_that_no_list_names_costs_one_list(server: ScriptedServer) -> None:
    async def answer(_: web.Request, message: Any) -> web.Response:
        is_list = message["method"] == "tools/list"
        return json_error(message, -32603) if is_list else json_result(message, text_result("ok"))

    server.answer = answer
    async with connected(server.url) as upstream:
        for _ in range(3):
            await result_of(upstream, call_tool("hidden"))
    assert server.methods() == ["tools/list"] + ["tools/call"] * 3


async def test_a_call_is_repeated_with_new_headers_when_the_schema_has_changed(server: ScriptedServer) -> None:
    header = "Region"

    async def answer(request: web.Request, message: Any) -> web.Response:
        if message["method"] == "tools/list":
            return json_result(message, _tools_with_header(header))
        if f"Mcp-Param-{header}" not in request.headers:
            return json_error(message, -32020)
        return json_result(message, text_result(header))

    server.answer = answer
    async with connected(server.url) as upstream:
        assert (await result_of(upstream, call_tool("query", {"region": "a"})))["content"][0]["text"] == "Region"
        header = "Area"
        assert (await result_of(upstream, call_tool("query", {"region": "a"})))["content"][0]["text"] == "Area"
        header = "never"
        server.answer = lambda request, message: _refuse(message)
        assert (await result_of(upstream, call_tool("query", {"region": "a"})))["code"] == -32020


async def _refuse(message: Any) -> web.Response:
    return json_error(message, -32020)


async def test_errors_of_the_server_are_responses(server: ScriptedServer) -> None:
    async def answer(_: web.Request, message: Any) -> web.Response:
        return json_error(message, -32601, status=404)

    server.answer = answer
    async with connected(server.url) as upstream:
        assert (await result_of(upstream, ask("tasks/get", taskId="1")))["code"] == -32601
        server.answer = lambda request, message: _json({"jsonrpc": "2.0", "id": None, "error": {"code": -32700}})
        assert (await result_of(upstream, ask("prompts/get", name="a")))["code"] == -32700


async def _json(content: Any, status: int = 200) -> web.Response:
    return web.json_response(content, status=status)


async def _respond(**options: Any) -> web.Response:
    return web.Response(**options)


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        ({"status": 307, "headers": {"Location": "http://169.254.169.254/"}}, "redirects"),
        ({"text": "<html>", "content_type": "text/html"}, "web page"),
        ({"text": "ok", "content_type": "text/plain"}, "text/plain"),
        ({"body": b"{]", "content_type": "application/json"}, "not JSON-RPC"),
        ({"body": b'{"jsonrpc": "2.0", "id": 1}', "content_type": "application/json"}, "not JSON-RPC"),
        ({"body": b"[" * 100_000, "content_type": "application/json"}, "not JSON-RPC"),
        ({"body": b"data: \xff\xfe\n\n", "content_type": "text/event-stream"}, "not JSON-RPC"),
        ({"body": b"", "content_type": "text/event-stream"}, "without a response"),
        ({"status": 202}, "without a response"),
        ({"status": 503, "text": "down for\n maintenance\x1b[31m"}, "status 503: down for maintenance"),
        ({"status": 401}, "refuses the credentials"),
        ({"body": b"{}", "headers": {"Content-Encoding": "gzip"}}, "compressed"),
    ],
)
async def test_answers_that_are_not_mcp_are_refused_with_the_reason(
    server: ScriptedServer, response: dict[str, Any], reason: str
) -> None:
    server.answer = lambda request, message: _respond(**response)
    async with connected(server.url) as upstream:
        with pytest.raises(Unavailable, match="MCP server tools") as raised:
            await messages_of(upstream, ask("prompts/list"))
        assert reason in raised.value.message
        if response.get("status") != 401:  # Other callers may have valid credentials.
            assert upstream.state.status == "failed"
            assert reason in upstream.state.reason


async def test_large_answers_are_cut_off(server: ScriptedServer) -> None:
    async def answer(request: web.Request, message: Any) -> web.StreamResponse:
        if message["method"] == "prompts/list":
            response = await open_stream(request)
        else:
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            await response.prepare(request)
        for _ in range(100):
            await response.write(b"x" * 2**20)
        return response

    server.answer = answer
    async with connected(server.url, limits={"response_size": "1Mi"}) as upstream:
        for method in ("resources/list", "prompts/list"):
            with pytest.raises(TooLarge, match=r"limits\.response_size"):
                await messages_of(upstream, ask(method))


async def test_a_flood_of_notifications_is_cut_off(server: ScriptedServer) -> None:
    async def answer(request: web.Request, message: Any) -> web.StreamResponse:
        response = await open_stream(request)
        while True:
            await send_event(response, {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x"}})

    server.answer = answer
    async with connected(server.url, limits={"response_size": "64Ki"}) as upstream:
        with pytest.raises(TooLarge):
            await messages_of(upstream, ask("prompts/list"))


async def test_foreign_and_duplicate_ids_are_ignored(server: ScriptedServer) -> None:
    async def answer(request: web.Request, message: Any) -> web.StreamResponse:
        response = await open_stream(request)
        await send_event(response, {"jsonrpc": "2.0", "id": "foreign", "result": text_result("wrong")})
        await send_event(response, {"jsonrpc": "2.0", "id": 99, "method": "elicitation/create", "params": {}})
        await send_event(response, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}})
        await send_event(response, {"jsonrpc": "2.0", "id": message["id"], "result": text_result("right")})
        await send_event(response, {"jsonrpc": "2.0", "id": message["id"], "result": text_result("again")})
        return response

    server.answer = answer
    async with connected(server.url) as upstream:
        responses = [each for each in await messages_of(upstream, ask("prompts/get", name="a")) if each.is_response]
        assert [each.result_object()["content"][0]["text"] for each in responses] == ["right"]


async def test_a_silent_server_times_out(server: ScriptedServer) -> None:
    left = asyncio.Event()

    async def answer(request: web.Request, message: Any) -> web.StreamResponse:
        try:
            if message["method"] == "prompts/list":
                await open_stream(request)
            await asyncio.Event().wait()
        finally:
            left.set()
        raise AssertionError

    server.answer = answer
    async with connected(server.url, timeouts={"call": 0.2}) as upstream:
        for method in ("resources/list", "prompts/list"):
            with pytest.raises(McpTimeout, match="did not answer for"):
                await messages_of(upstream, ask(method))
        async with asyncio.timeout(10):
            await left.wait()
        assert upstream.state.status == "ready"  # One slow call says nothing about the server.
        loop = asyncio.get_running_loop()
        hurried = CallContext(tenant="default", caller="ada", deadline=loop.time() + 0.05)
        with pytest.raises(McpTimeout, match="deadline"):
            await messages_of(upstream, ask("resources/list"), hurried)


async def test_progress_extends_a_call_up_to_the_total(server: ScriptedServer) -> None:
    async def answer(request: web.Request, message: Any) -> web.StreamResponse:
        response = await open_stream(request)
        while True:
            await send_event(response, {"jsonrpc": "2.0", "method": "notifications/progress", "params": {}})
            await asyncio.sleep(0.05)

    server.answer = answer
    async with connected(server.url, timeouts={"call": 0.3, "total": 0.9}) as upstream:
        with pytest.raises(McpTimeout, match=r"timeouts\.total"):
            await messages_of(upstream, ask("prompts/list"))


async def test_cancelling_closes_the_response(server: ScriptedServer) -> None:
    left = asyncio.Event()

    async def answer(request: web.Request, message: Any) -> web.StreamResponse:
        response = await open_stream(request)
        await send_event(response, {"jsonrpc": "2.0", "method": "notifications/progress", "params": {}})
        try:
            await asyncio.Event().wait()
        finally:
            left.set()
        return response

    server.answer = answer
    async with connected(server.url) as upstream:
        async with aclosing(upstream.exchange(ask("prompts/list"), ADA)) as messages:
            assert (await anext(messages)).method == "notifications/progress"
        async with asyncio.timeout(10):
            await left.wait()


async def test_a_server_that_dies_during_a_call_is_an_error(server: ScriptedServer) -> None:
    async def answer(request: web.Request, message: Any) -> web.StreamResponse:
        response = await open_stream(request)
        await send_event(response, {"jsonrpc": "2.0", "method": "notifications/progress", "params": {}})
        assert request.transport is not None
        request.transport.abort()
        return response

    server.answer = answer
    async with connected(server.url) as upstream:
        with pytest.raises(Unavailable, match="before the end of its answer"):
            await messages_of(upstream, ask("prompts/list"))


async def test_lists_are_kept_as_the_server_allows(server: ScriptedServer) -> None:
    hints = {"ttlMs": 60_000, "cacheScope": "public"}

    async def answer(request: web.Request, message: Any) -> web.StreamResponse:
        if message["method"] == "subscriptions/listen":
            response = await open_stream(request)
            await send_event(response, {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            return response
        return json_result(message, {"tools": []} | hints)

    server.answer = answer
    async with connected(server.url) as upstream:
        for context in (ADA, BOB, ADA):
            await result_of(upstream, ask("tools/list"), context)
        assert server.methods() == ["tools/list"]
        await result_of(upstream, ask("tools/list", cursor="next"))
        assert server.methods() == ["tools/list"] * 2
        with pytest.raises(Unavailable):  # The scripted stream ends without a response.
            await messages_of(upstream, ask("subscriptions/listen"))
        hints["cacheScope"] = "private"
        for context in (ADA, BOB, ADA, BOB):
            await result_of(upstream, ask("tools/list"), context)
        assert server.methods() == ["tools/list"] * 2 + ["subscriptions/listen"] + ["tools/list"] * 2


async def test_discovery_is_asked_once(server: ScriptedServer) -> None:
    server.answer = lambda request, message: _json({"jsonrpc": "2.0", "id": message["id"], "result": {}})
    async with connected(server.url) as upstream:
        found = await asyncio.gather(*(result_of(upstream, ask("server/discover", number)) for number in range(20)))
        assert all(each["capabilities"] == {"tools": {}} for each in found)
    assert len(server.received) == 1


async def test_an_unreachable_server_answers_with_the_reason_and_is_not_hammered() -> None:
    async with connected("http://127.0.0.1:9/mcp") as upstream:
        for _ in range(5):
            with pytest.raises(Unavailable, match="cannot be reached"):
                await messages_of(upstream, ask("tools/list"))
        assert upstream.state.status == "failed"
        assert len(upstream.health_history) < 10


async def test_addresses_are_checked_when_connecting(server: ScriptedServer) -> None:
    async with connected("http://169.254.169.254/mcp") as upstream:
        with pytest.raises(Forbidden):
            await messages_of(upstream, ask("tools/list"))


async def test_servers_on_the_internet_use_only_the_strict_client(server: ScriptedServer) -> None:
    port = server.url.rpartition(":")[2]
    async with connected(f"https://tools.example.org:{port}", kind="internet") as upstream:
        with pytest.raises(Unavailable, match="not reachable"):
            await messages_of(upstream, ask("tools/list"))
    assert server.received == []


class _Credentials:
    def __init__(self) -> None:
        self.token = "old"
        self.challenges: list[str | None] = []

    async def headers(self, *_: Any) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    async def on_challenge(self, server: Any, context: Any, status: int, challenge: str | None) -> bool:
        self.challenges.append(challenge)
        self.token = "new"
        return True


async def test_a_refused_request_is_repeated_with_new_credentials(server: ScriptedServer) -> None:
    async def answer(request: web.Request, message: Any) -> web.Response:
        if request.headers["Authorization"] != "Bearer new":
            return web.Response(status=401, headers={"WWW-Authenticate": 'Bearer scope="x"'})
        return json_result(message, {"prompts": []})

    server.answer = answer
    credentials = _Credentials()
    async with connected(server.url, {"credentials": credentials}) as upstream:
        assert (await result_of(upstream, ask("prompts/list")))["prompts"] == []
        assert credentials.challenges == ['Bearer scope="x"']
        server.answer = lambda request, message: _respond(status=401)
        with pytest.raises(Unavailable, match="refuses the credentials"):
            await messages_of(upstream, ask("prompts/list"))
        assert len(credentials.challenges) == 3


async def test_requests_have_a_maximum_size(server: ScriptedServer) -> None:
    server.answer = lambda request, message: _json({"jsonrpc": "2.0", "id": message["id"], "result": {"tools": []}})
    async with connected(server.url, limits={"request_size": "1Mi"}) as upstream:
        with pytest.raises(TooLarge, match=r"limits\.request_size"):
            await messages_of(upstream, call_tool("a", {"text": "x" * 2**20}))
        await result_of(upstream, call_tool("a", {"text": "x" * (2**20 - 5000)}))
    assert json.loads(server.received[-1].body)["params"]["arguments"]["text"].startswith("xxx")
