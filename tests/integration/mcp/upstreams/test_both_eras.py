"""A server that speaks both eras: stateless clients are not translated, and clients with sessions have one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from tests.integration.mcp.upstream_servers import serve_app
from tests.integration.mcp.upstreams.scripted_server import ADA, ask, call_tool, connected, result_of
from tests.integration.mcp.upstreams.sdk_server import sdk_server_app

pytestmark = pytest.mark.anyio
FORM: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
WITH_SESSION = replace(ADA, client_session="client-1")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serve_app(sdk_server_app()) as port:
        yield f"http://127.0.0.1:{port}/mcp"


async def test_stateless_clients_get_the_answers_of_the_server(url: str) -> None:
    async with connected(url) as upstream:
        found = await result_of(upstream, ask("server/discover"))
        assert found["instructions"] == "For tests."
        assert (await result_of(upstream, ask("resources/read", uri="test://text")))["contents"][0]["text"] == "text"
        prompt = await result_of(upstream, ask("prompts/get", name="ask", arguments={"topic": "møøse"}))
        assert prompt["messages"][0]["content"]["text"] == "Tell about møøse."
        for region in ("eu", " padded ", "Zürich"):
            assert (await result_of(upstream, call_tool("query", {"region": region})))["content"][0]["text"] == region
        missing = await result_of(upstream, ask("resources/read", uri="test://none"))
        assert missing["code"] == -32602
        asked = await result_of(upstream, call_tool("confirm", _meta=FORM))
        answers = {"name": {"action": "accept", "content": {"name": "Ada"}}}
        more = {"requestState": asked["requestState"], "inputResponses": answers}
        result = await result_of(upstream, call_tool("confirm", message_id=8, _meta=FORM, **more))
        assert result["content"][0]["text"] == "Ada kept"


async def test_clients_with_sessions_get_one_with_the_server(url: str) -> None:
    async with connected(url) as upstream:
        await result_of(upstream, ask("tools/list"))
        asked = await result_of(upstream, call_tool("greet", _meta=FORM), WITH_SESSION)
        [(key, request)] = asked["inputRequests"].items()
        assert request["params"]["message"] == "Name?"
        answers = {key: {"action": "accept", "content": {"name": "Ada"}}}
        more = {"requestState": asked["requestState"], "inputResponses": answers}
        result = await result_of(upstream, call_tool("greet", message_id=8, _meta=FORM, **more), WITH_SESSION)
        assert result["content"][0]["text"] == "Hello Ada"


async def test_requests_that_only_sessions_have_do_not_reach_a_shared_session(url: str) -> None:
    async with connected(url) as upstream:
        await result_of(upstream, ask("tools/list"), WITH_SESSION)
        for method in ("initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"):
            assert (await result_of(upstream, ask(method), WITH_SESSION))["code"] == -32601


async def test_subscriptions_of_both_eras(url: str) -> None:
    request = ask("subscriptions/listen", "sub", notifications={"toolsListChanged": True})
    own = {"io.modelcontextprotocol/subscriptionId": "sub"}
    async with connected(url) as upstream:
        async with asyncio.timeout(20), aclosing(upstream.exchange(request, ADA)) as messages:
            acknowledged = {"_meta": own, "notifications": {"toolsListChanged": True}}
            assert (await anext(messages)).params_object() == acknowledged
            changed = asyncio.ensure_future(anext(messages))
            await result_of(upstream, call_tool("change"))
            assert (await changed).method == "notifications/tools/list_changed"
            assert (await changed).params_object()["_meta"] == own
        # In sessions this server does not declare that its lists change.
        async with asyncio.timeout(20), aclosing(upstream.exchange(request, WITH_SESSION)) as messages:
            assert (await anext(messages)).params_object() == {"_meta": own, "notifications": {}}
