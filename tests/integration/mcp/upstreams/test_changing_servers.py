"""Servers that restart, change their revision, repeat secrets, or are shared by many."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from paddock.errors import Unavailable
from paddock.mcp.protocol import CallContext
from paddock.mcp.upstreams import subscription_renewal
from tests.integration.mcp.upstreams.legacy_server import LegacyCall, LegacyServer
from tests.integration.mcp.upstreams.scripted_server import (
    ADA,
    BOB,
    ScriptedServer,
    ask,
    call_tool,
    connected,
    discovered,
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


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as server:
        yield server


async def _finish(call: LegacyCall) -> None:
    await call.finish(call.message["params"]["name"])


async def test_a_server_that_gave_up_sessions_is_asked_for_its_revision_again(scripted: ScriptedServer) -> None:
    server = LegacyServer(scripted)
    server.on_call = _finish
    async with connected(scripted.url) as upstream:
        await result_of(upstream, call_tool("a"))

        async def answer(_: web.Request, message: Any) -> web.Response:
            if message["method"] == "initialize":
                return json_error(message, -32602)
            return json_result(message, text_result("new"))

        scripted.discover, scripted.answer = discovered(), answer
        server.sessions.clear()
        stateless = replace(ADA, caller="eve")
        assert (await result_of(upstream, call_tool("a"), stateless))["content"][0]["text"] == "new"


async def test_a_server_that_got_sessions_is_asked_for_its_revision_again(scripted: ScriptedServer) -> None:
    async def answer(_: web.Request, message: Any) -> web.Response:
        return json_result(message, text_result("old"))

    scripted.answer = answer
    async with connected(scripted.url) as upstream:
        await result_of(upstream, call_tool("a"))
        LegacyServer(scripted).on_call = _finish
        assert (await result_of(upstream, call_tool("a")))["content"][0]["text"] == "a"


async def test_one_refused_request_does_not_end_the_sessions_of_others(scripted: ScriptedServer) -> None:
    server = LegacyServer(scripted)
    bob_is_done = asyncio.Event()

    async def on_call(call: LegacyCall) -> None:
        await bob_is_done.wait()
        await call.finish("a")

    server.on_call = on_call
    inner = scripted.answer
    assert inner is not None

    async def answer(request: web.Request, message: Any) -> web.StreamResponse:
        if message and message.get("method") == "prompts/list":
            return web.Response(status=400, text="no")
        return await inner(request, message)

    scripted.answer = answer
    async with connected(scripted.url) as upstream:
        waiting = asyncio.ensure_future(result_of(upstream, call_tool("a")))
        await server.wait_for("tools/call")
        for _ in range(3):
            with pytest.raises(Unavailable, match="status 400: no"):
                await messages_of(upstream, ask("prompts/list"), BOB)
        bob_is_done.set()
        assert (await waiting)["content"][0]["text"] == "a"
        assert server.opened == 2


async def test_a_stateless_server_that_ignores_sessions_costs_clients_with_sessions_one_wait(
    scripted: ScriptedServer,
) -> None:
    async def answer(request: web.Request, message: Any) -> web.Response:
        if message["method"] == "initialize":
            await asyncio.Event().wait()
        return json_result(message, {"tools": []} if message["method"] == "tools/list" else text_result("ok"))

    scripted.answer = answer
    async with connected(scripted.url, timeouts={"start": 2}) as upstream:
        for number in range(3):
            context = replace(ADA, client_session=str(number))
            assert (await result_of(upstream, call_tool("a"), context))["content"][0]["text"] == "ok"
    assert scripted.methods().count("initialize") == 1


async def test_secrets_that_a_server_repeats_are_masked(scripted: ScriptedServer) -> None:
    async def answer(request: web.Request, message: Any) -> web.Response:
        token = request.headers["Authorization"]
        return web.Response(status=400, text=f"{token} is bad, {token.split()[1]} too")

    scripted.answer = answer
    declared = {"headers": {"Authorization": "Bearer ${KEY}"}}
    async with connected(scripted.url, {"secrets": {"KEY": "sesame-open"}.get}, **declared) as upstream:
        with pytest.raises(Unavailable, match="status 400") as raised:
            await messages_of(upstream, call_tool("a"))
        assert "sesame" not in raised.value.message + upstream.state.reason
        assert scripted.received[-1].headers["Authorization"] == "Bearer sesame-open"


async def test_refused_credentials_of_one_caller_do_not_concern_others(scripted: ScriptedServer) -> None:
    class Credentials:
        async def headers(self, server: Any, context: CallContext) -> dict[str, str]:
            return {"Authorization": f"Bearer {context.caller}"}

        async def on_challenge(self, *_: Any) -> bool:
            return False

    async def answer(request: web.Request, message: Any) -> web.Response:
        if request.headers["Authorization"] != "Bearer ada":
            return web.Response(status=401)
        return json_result(message, discovered() if "discover" in message["method"] else text_result("ok"))

    scripted.discover, scripted.answer = None, answer
    async with connected(scripted.url, {"credentials": Credentials()}) as upstream:
        for _ in range(3):
            with pytest.raises(Unavailable, match="refuses the credentials"):
                await messages_of(upstream, call_tool("a"), BOB)
            assert (await result_of(upstream, call_tool("a")))["content"][0]["text"] == "ok"
            assert upstream.state.status == "ready"


async def test_an_unknown_method_does_not_end_a_session(scripted: ScriptedServer) -> None:
    server = LegacyServer(scripted)
    server.on_call = _finish
    inner = scripted.answer
    assert inner is not None

    async def answer(request: web.Request, message: Any) -> web.StreamResponse:
        if message and message.get("method") == "tasks/list":
            return json_error(message, -32601, status=404)
        return await inner(request, message)

    scripted.answer = answer
    async with connected(scripted.url) as upstream:
        await result_of(upstream, call_tool("a"))
        assert (await result_of(upstream, ask("tasks/list")))["code"] == -32601
        assert server.opened == 1


async def test_a_stateless_subscription_outlives_its_connection(
    scripted: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription_renewal, "RENEWAL_DELAYS", (0.01, 0.01))
    opened = 0

    async def answer(request: web.Request, message: Any) -> web.StreamResponse:
        nonlocal opened
        opened += 1
        stream = await open_stream(request)
        own = {"_meta": {"io.modelcontextprotocol/subscriptionId": message["id"]}}
        for method in ("subscriptions/acknowledged", "tools/list_changed"):
            await send_event(stream, {"jsonrpc": "2.0", "method": f"notifications/{method}", "params": own})
        return stream

    scripted.answer = answer
    async with connected(scripted.url) as upstream:
        found = []

        async def listen() -> None:
            async with aclosing(upstream.exchange(ask("subscriptions/listen", notifications={}), ADA)) as messages:
                async for message in messages:
                    found.append(message.method)

        with pytest.raises(Unavailable):  # A server that only breaks off is given up in the end.
            await listen()
        assert found == ["notifications/subscriptions/acknowledged"] + ["notifications/tools/list_changed"] * 3
        assert opened == 3


async def test_tools_that_change_during_a_call_are_listed_again(scripted: ScriptedServer) -> None:
    server = LegacyServer(scripted)

    async def on_call(call: LegacyCall) -> None:
        await call.send({"method": "notifications/tools/list_changed"})
        await call.finish("done")

    server.on_call = on_call
    async with connected(scripted.url) as upstream:
        for _ in range(2):
            await result_of(upstream, ask("tools/list"))
        assert server.methods().count("tools/list") == 1
        await result_of(upstream, call_tool("a"))
        await result_of(upstream, ask("tools/list"))
        assert server.methods().count("tools/list") == 2


async def test_many_sandboxes_share_a_server(scripted: ScriptedServer) -> None:
    server = LegacyServer(scripted)
    server.on_call = _finish
    async with connected(scripted.url) as upstream:
        contexts = [replace(ADA, sandbox=f"sb-{number}") for number in range(500)]
        await result_of(upstream, call_tool("first"), contexts[0])
        calls = [result_of(upstream, call_tool(str(each.sandbox)), each) for each in contexts]
        results = await asyncio.gather(*calls)
        assert [each["content"][0]["text"] for each in results] == [each.sandbox for each in contexts]
        assert len(server.sessions) == 500
    assert server.sessions == {}


async def test_a_server_that_never_answers_the_probe_is_asked_for_a_session(scripted: ScriptedServer) -> None:
    server = LegacyServer(scripted)
    server.on_call = _finish
    inner = scripted.answer
    assert inner is not None

    async def answer(request: web.Request, message: Any) -> web.StreamResponse:
        if message and message.get("method") == "server/discover":
            await asyncio.Event().wait()
        return await inner(request, message)

    scripted.answer = answer
    async with connected(scripted.url, timeouts={"start": 2}) as upstream:
        assert (await result_of(upstream, call_tool("a")))["content"][0]["text"] == "a"
