"""Connections to servers with sessions over streamable HTTP, in the stateless form."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from paddock.errors import McpTimeout, TooLarge, Unavailable
from paddock.mcp.upstreams.sessions import session_pool, suspended_calls, upstream_session
from tests.integration.mcp.upstreams.legacy_server import LegacyCall, LegacyServer
from tests.integration.mcp.upstreams.scripted_server import (
    ADA,
    BOB,
    META,
    ScriptedServer,
    ask,
    call_tool,
    connected,
    messages_of,
    result_of,
    scripted_server,
)

pytestmark = pytest.mark.anyio
FORM: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}, "roots": {}}}


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as server:
        yield server


@pytest.fixture
async def server(scripted: ScriptedServer) -> LegacyServer:
    return LegacyServer(scripted)


async def _finish(call: LegacyCall) -> None:
    await call.finish(call.message["params"]["name"])


async def test_requests_lose_the_fields_of_the_stateless_form(scripted: ScriptedServer, server: LegacyServer) -> None:
    server.on_call = _finish
    async with connected(scripted.url) as upstream:
        meta = {"traceparent": "00-1", "progressToken": "mine"}
        result = await result_of(upstream, call_tool("hello", {"big": 2**70}, _meta=meta))
        assert result == {"resultType": "complete", "content": [{"type": "text", "text": "hello"}]}
        assert server.sessions["session-1"]["protocolVersion"] == "2025-11-25"
        assert server.sessions["session-1"]["clientInfo"] == {"name": "tests", "version": "1"}
        _, call = server.received[-1]
        assert call["params"]["arguments"] == {"big": 2**70}
        assert call["params"]["_meta"] == {"traceparent": "00-1", "progressToken": call["id"]}
        assert server.methods() == ["notifications/initialized", "tools/call"]
        assert scripted.received[-1].headers["MCP-Protocol-Version"] == "2025-11-25"
    assert server.ended == ["session-1"]


async def test_discovery_and_lists_get_what_the_stateless_form_needs(
    scripted: ScriptedServer, server: LegacyServer
) -> None:
    async with connected(scripted.url) as upstream:
        found = await result_of(upstream, ask("server/discover"))
        assert found["supportedVersions"] == ["2026-07-28"]
        assert found["instructions"] == "Be kind."
        assert found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "old"
        for _ in range(2):
            tools = await result_of(upstream, ask("tools/list"))
            assert (tools["resultType"], tools["ttlMs"] > 0, tools["cacheScope"]) == ("complete", True, "private")
        assert server.methods().count("tools/list") == 1
        missing = await result_of(upstream, ask("resources/read", uri="a"))
        assert (missing["code"], missing["data"]) == (-32602, {"uri": "a"})


async def test_each_client_has_a_session_of_its_own(scripted: ScriptedServer, server: LegacyServer) -> None:
    server.on_call = _finish
    contexts = [ADA, BOB, replace(ADA, client_session="1"), replace(ADA, client_session="2"), replace(ADA, sandbox="s")]
    async with connected(scripted.url) as upstream:
        for context in contexts * 2:
            await result_of(upstream, call_tool("a"), context)
        assert len(server.sessions) == len(contexts)
        await result_of(upstream, call_tool("a", _meta=FORM))
        assert len(server.sessions) == len(contexts) + 1  # Other capabilities need another session.
        assert server.sessions["session-6"]["capabilities"] == {"elicitation": {"form": {}}, "roots": {}}


async def test_an_expired_session_is_renewed_unnoticed(scripted: ScriptedServer, server: LegacyServer) -> None:
    server.on_call = _finish
    async with connected(scripted.url) as upstream:
        await result_of(upstream, call_tool("a"))
        server.sessions.clear()
        results = await asyncio.gather(*(result_of(upstream, call_tool("b", message_id=each)) for each in range(5)))
        assert [each["content"][0]["text"] for each in results] == ["b"] * 5
        assert len(server.sessions) == 1


async def test_progress_and_logs_reach_their_call(scripted: ScriptedServer, server: LegacyServer) -> None:
    async def on_call(call: LegacyCall) -> None:
        token = call.message["params"]["_meta"]["progressToken"]
        for progress, own in ((1, token), (2, 999_999), (3, token)):
            params = {"progressToken": own, "progress": progress}
            await call.send({"method": "notifications/progress", "params": params})
        for level in ("debug", "error"):
            await call.send({"method": "notifications/message", "params": {"level": level, "data": level}})
        await call.finish("done")

    server.on_call = on_call
    meta = {"progressToken": "mine", "io.modelcontextprotocol/logLevel": "warning"}
    async with connected(scripted.url) as upstream:
        *notifications, _ = await messages_of(upstream, call_tool("a", _meta=meta))
        assert [each.params_object() for each in notifications] == [
            {"progressToken": "mine", "progress": 1},
            {"progressToken": "mine", "progress": 3},
            {"level": "error", "data": "error"},
        ]
        assert (await server.wait_for("logging/setLevel"))["params"] == {"level": "warning"}


async def test_a_request_of_the_server_suspends_the_call(scripted: ScriptedServer, server: LegacyServer) -> None:
    async def on_call(call: LegacyCall) -> None:
        name = await call.ask("elicitation/create", {"message": "Name?", "requestedSchema": {"type": "object"}})
        roots = await call.ask("roots/list")
        await call.finish(f"{name['content']['name']} {roots['roots'][0]['uri']}")

    server.on_call = on_call
    async with connected(scripted.url) as upstream:
        asked = await result_of(upstream, call_tool("greet", message_id=1, _meta=FORM))
        assert asked["resultType"] == "input_required"
        [(key, request)] = asked["inputRequests"].items()
        assert (request["method"], request["params"]["message"]) == ("elicitation/create", "Name?")
        answers = {key: {"action": "accept", "content": {"name": "Ada"}}}

        def repeated(state: str, answers: Any, message_id: int = 2, name: str = "greet") -> Any:
            return call_tool(name, message_id=message_id, _meta=FORM, requestState=state, inputResponses=answers)

        state = asked["requestState"]
        assert (await result_of(upstream, repeated(state, answers), BOB))["code"] == -32602
        assert (await result_of(upstream, repeated(state, answers, name="other")))["code"] == -32602
        assert (await result_of(upstream, repeated(state + "x", answers)))["code"] == -32602
        again = await result_of(upstream, repeated(state, {"unknown": {}}))
        assert list(again["inputRequests"]) == [key]  # Missing answers are asked for again.
        asked = await result_of(upstream, repeated(again["requestState"], answers, 3))
        [(key, request)] = asked["inputRequests"].items()
        assert request["method"] == "roots/list"
        state = asked["requestState"]
        result = await result_of(upstream, repeated(state, {key: {"roots": [{"uri": "file:///a"}]}}, 4))
        assert result["content"][0]["text"] == "Ada file:///a"
        assert (await result_of(upstream, repeated(state, {}, 5)))["code"] == -32602  # Each state is valid once.
        assert server.methods().count("tools/call") == 1


async def test_a_suspended_call_is_cancelled_after_a_time(
    scripted: ScriptedServer, server: LegacyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_pool, "SuspendedCalls", lambda: suspended_calls.SuspendedCalls(0.05))

    async def on_call(call: LegacyCall) -> None:
        await call.ask("elicitation/create", {})

    server.on_call = on_call
    async with connected(scripted.url) as upstream:
        asked = await result_of(upstream, call_tool("a", _meta=FORM))
        cancelled = await server.wait_for("notifications/cancelled")
        call = await server.wait_for("tools/call")
        assert cancelled["params"]["requestId"] == call["id"]
        late = call_tool("a", _meta=FORM, requestState=asked["requestState"], inputResponses={})
        assert (await result_of(upstream, late))["code"] == -32602


async def test_suspended_calls_are_bounded(scripted: ScriptedServer, server: LegacyServer) -> None:
    async def on_call(call: LegacyCall) -> None:
        await call.ask("elicitation/create", {})

    server.on_call = on_call
    async with connected(scripted.url) as upstream:
        for number in range(suspended_calls.MAX_SUSPENDED_PER_CALLER):
            assert (await result_of(upstream, call_tool("a", message_id=number, _meta=FORM)))["requestState"]
        with pytest.raises(Unavailable, match="too much input"):
            await messages_of(upstream, call_tool("a", _meta=FORM))


async def test_a_server_that_asks_without_end_is_stopped(
    scripted: ScriptedServer, server: LegacyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_session, "MAX_INPUT_ROUNDS", 3)

    async def on_call(call: LegacyCall) -> None:
        while True:
            await call.ask("elicitation/create", {})

    server.on_call = on_call
    async with connected(scripted.url) as upstream:
        more: dict[str, Any] = {}
        for _ in range(3):
            asked = await result_of(upstream, call_tool("a", _meta=FORM, **more))
            more = {
                "requestState": asked["requestState"],
                "inputResponses": {each: {} for each in asked["inputRequests"]},
            }
        with pytest.raises(Unavailable, match="too much input"):
            await messages_of(upstream, call_tool("a", _meta=FORM, **more))
        await server.wait_for("notifications/cancelled")


async def test_demands_beyond_the_capabilities_of_the_client_are_refused(
    scripted: ScriptedServer, server: LegacyServer
) -> None:
    async def on_call(call: LegacyCall) -> None:
        errors = [(await call.ask(each))["code"] for each in ("elicitation/create", "sampling/createMessage", "evil/x")]
        assert await call.ask("ping") == {}
        await call.finish(str(errors))

    server.on_call = on_call
    async with connected(scripted.url) as upstream:
        assert (await result_of(upstream, call_tool("a")))["content"][0]["text"] == "[-32601, -32601, -32601]"


async def test_cancelling_uses_the_id_that_the_server_knows(scripted: ScriptedServer, server: LegacyServer) -> None:
    async def on_call(call: LegacyCall) -> None:
        token = call.message["params"]["_meta"]["progressToken"]
        await call.send({"method": "notifications/progress", "params": {"progressToken": token, "progress": 1}})
        await asyncio.Event().wait()

    server.on_call = on_call
    async with connected(scripted.url) as upstream:
        request = call_tool("slow", message_id="client-id", _meta={"progressToken": 1})
        async with aclosing(upstream.exchange(request, ADA)) as messages:
            await anext(messages)
        cancelled = await server.wait_for("notifications/cancelled")
        call = await server.wait_for("tools/call")
        assert cancelled["params"]["requestId"] == call["id"] != "client-id"


async def test_a_call_without_progress_is_cancelled(scripted: ScriptedServer, server: LegacyServer) -> None:
    async def on_call(call: LegacyCall) -> None:
        await asyncio.Event().wait()

    server.on_call = on_call
    async with connected(scripted.url, timeouts={"call": 0.2}) as upstream:
        with pytest.raises(McpTimeout):
            await messages_of(upstream, call_tool("a"))
        assert (await server.wait_for("notifications/cancelled"))["params"]["reason"] == "time-out"


async def test_foreign_answers_and_floods_do_not_disturb_a_session(
    scripted: ScriptedServer, server: LegacyServer
) -> None:
    async def on_call(call: LegacyCall) -> None:
        if call.message["params"]["name"] == "flood":
            while True:
                await call.send({"method": "notifications/message", "params": {"level": "error", "data": "x" * 1000}})
        for wrong in (call.message["id"] + 1, 10**9, "text", None):
            await call.send({"id": wrong, "result": {"content": []}})
        await call.send({"method": "notifications/cancelled", "params": {"requestId": 77}})
        await call.send({"method": "notifications/progress", "params": {"progressToken": {}}})
        await call.send({"method": "notifications/progress", "params": [1]})
        await call.finish("right")
        await call.finish("again")

    server.on_call = on_call
    async with connected(scripted.url, limits={"response_size": "64Ki"}) as upstream:
        with pytest.raises(TooLarge):
            await messages_of(upstream, call_tool("flood", _meta={"io.modelcontextprotocol/logLevel": "debug"}))
        assert (await result_of(upstream, call_tool("a")))["content"][0]["text"] == "right"
        assert len(server.sessions) == 1


async def test_subscriptions_listen_on_the_stream_of_the_session(
    scripted: ScriptedServer, server: LegacyServer
) -> None:
    wanted = {"toolsListChanged": True, "promptsListChanged": True, "resourceSubscriptions": ["file:///a", "bad:"]}
    async with connected(scripted.url) as upstream:
        listening = upstream.exchange(ask("subscriptions/listen", "sub", notifications=wanted), ADA)
        async with asyncio.timeout(20), aclosing(listening) as messages:
            acknowledged = (await anext(messages)).params_object()
            assert acknowledged == {
                "_meta": {"io.modelcontextprotocol/subscriptionId": "sub"},
                "notifications": {"toolsListChanged": True, "resourceSubscriptions": ["file:///a"]},
            }
            await result_of(upstream, ask("tools/list"))
            server.notifications.put_nowait({"method": "notifications/prompts/list_changed"})
            server.notifications.put_nowait({"method": "notifications/resources/updated", "params": {"uri": "other:"}})
            server.notifications.put_nowait({"method": "notifications/tools/list_changed"})
            server.notifications.put_nowait(
                {"method": "notifications/resources/updated", "params": {"uri": "file:///a"}}
            )
            found = [await anext(messages), await anext(messages)]
            assert [each.method for each in found] == [
                "notifications/tools/list_changed",
                "notifications/resources/updated",
            ]
            assert all(each.params_object()["_meta"] == acknowledged["_meta"] for each in found)
            await result_of(upstream, ask("tools/list"))
            assert server.methods().count("tools/list") == 2  # The change made the kept list stale.
            # A new session takes over, and the client is not told.
            server.sessions.clear()
            server.listening.clear()
            server.notifications.put_nowait(None)
            more = asyncio.ensure_future(anext(messages))
            await server.listening.wait()
            server.notifications.put_nowait({"method": "notifications/tools/list_changed"})
            assert (await more).method == "notifications/tools/list_changed"
        await server.wait_for("resources/unsubscribe")
        assert server.methods().count("resources/subscribe") == 4


async def test_a_broken_stream_is_resumed(scripted: ScriptedServer, server: LegacyServer) -> None:
    async def on_call(call: LegacyCall) -> None:
        await call._stream.write(b"id: 41\nretry: 10\ndata:\n\n")
        done = {"id": call.message["id"], "result": {"content": [{"type": "text", "text": "resumed"}]}}
        server.notifications.put_nowait(done)

    server.on_call = on_call
    async with connected(scripted.url) as upstream:
        assert (await result_of(upstream, call_tool("a")))["content"][0]["text"] == "resumed"
        assert server.last_event_ids == ["41"]


async def test_idle_sessions_are_ended(
    scripted: ScriptedServer, server: LegacyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_pool.SessionPool.__init__, "__defaults__", (lambda message: None, 0.05))
    server.on_call = _finish
    async with connected(scripted.url) as upstream:
        await result_of(upstream, call_tool("a"))
        async with asyncio.timeout(10):
            while not server.ended:
                await asyncio.sleep(0.01)
        await result_of(upstream, call_tool("a"))
        assert "session-2" in server.sessions or "session-1" in server.sessions


async def test_the_number_of_sessions_is_bounded(
    scripted: ScriptedServer, server: LegacyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_pool, "MAX_SESSIONS", 3)
    server.on_call = _finish
    async with connected(scripted.url) as upstream:
        for number in range(10):
            await result_of(upstream, call_tool("a"), replace(ADA, client_session=str(number)))
        async with asyncio.timeout(10):
            while len(server.sessions) > 3:
                await asyncio.sleep(0.01)


async def test_a_server_that_refuses_sessions_says_why(scripted: ScriptedServer) -> None:
    async def answer(request: web.Request, message: Any) -> web.Response:
        if request.method == "GET":
            return web.Response(status=405)
        error = {"code": -32000, "message": "over quota"}
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error})

    scripted.discover = None
    scripted.answer = answer
    async with connected(scripted.url) as upstream:
        with pytest.raises(Unavailable, match="over quota"):
            await messages_of(upstream, ask("tools/list"))
        assert "over quota" in upstream.state.reason
    assert META["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
