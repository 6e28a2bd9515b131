"""The reference server of the npm registry, with sessions, over streamable HTTP and SSE."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

import pytest

from tests.integration.mcp.published_servers import everything_server
from tests.integration.mcp.upstreams.scripted_server import ADA, ask, call_tool, connected, messages_of, result_of

pytestmark = pytest.mark.anyio
CLIENT: dict[str, Any] = {
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}, "sampling": {}, "roots": {}}
}


@pytest.fixture(scope="module", params=["streamableHttp", "sse"])
def declared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    with everything_server(request.param, tmp_path_factory.mktemp("everything") / "log") as url:
        yield {"url": url, "transport": "http" if request.param == "streamableHttp" else "sse"}


async def test_tools_prompts_and_resources(declared: dict[str, Any]) -> None:
    async with connected(**declared) as upstream:
        found = await result_of(upstream, ask("server/discover"))
        assert {"tools", "prompts", "resources", "logging", "completions"} <= set(found["capabilities"])
        tools = {tool["name"] for tool in (await result_of(upstream, ask("tools/list")))["tools"]}
        assert {"echo", "get-sum"} <= tools
        echoed = await result_of(upstream, call_tool("echo", {"message": "höllo"}))
        assert (echoed["resultType"], echoed["content"][0]["text"]) == ("complete", "Echo: höllo")
        assert (await result_of(upstream, ask("prompts/list")))["prompts"]
        templates = await result_of(upstream, ask("resources/templates/list"))
        assert templates["resourceTemplates"]
        resources = (await result_of(upstream, ask("resources/list")))["resources"]
        read = await result_of(upstream, ask("resources/read", uri=resources[0]["uri"]))
        assert read["contents"][0]["uri"] == resources[0]["uri"]


async def test_progress_of_concurrent_calls_is_kept_apart(declared: dict[str, Any]) -> None:
    async def call(number: int) -> list[Any]:
        request = call_tool(
            "trigger-long-running-operation", {"duration": 0.3, "steps": 3}, number, _meta={"progressToken": number}
        )
        *progress, response = await messages_of(upstream, request)
        assert response.id == number
        assert {each.params_object()["progressToken"] for each in progress} == {number}
        return progress

    async with connected(**declared) as upstream:
        assert [len(each) for each in await asyncio.gather(*map(call, range(5)))] == [3] * 5


async def test_sampling_and_elicitation_become_required_input(declared: dict[str, Any]) -> None:
    async with connected(**declared) as upstream:
        sample = {"prompt": "Say hi", "maxTokens": 10}
        asked = await result_of(upstream, call_tool("trigger-sampling-request", sample, _meta=CLIENT))
        asked = await _answer_roots(upstream, "trigger-sampling-request", sample, asked)
        [(key, request)] = asked["inputRequests"].items()
        assert request["method"] == "sampling/createMessage"
        content = {"role": "assistant", "content": {"type": "text", "text": "hi there"}, "model": "m"}
        more = {"requestState": asked["requestState"], "inputResponses": {key: content}}
        result = await result_of(upstream, call_tool("trigger-sampling-request", sample, 8, _meta=CLIENT, **more))
        assert "hi there" in result["content"][0]["text"]
        asked = await result_of(upstream, call_tool("trigger-elicitation-request", _meta=CLIENT))
        [(key, request)] = asked["inputRequests"].items()
        assert request["method"] == "elicitation/create"
        more = {"requestState": asked["requestState"], "inputResponses": {key: {"action": "decline"}}}
        result = await result_of(upstream, call_tool("trigger-elicitation-request", None, 9, _meta=CLIENT, **more))
        assert "declined" in result["content"][0]["text"]


async def _answer_roots(upstream: Any, tool: str, arguments: Any, asked: Any) -> Any:
    """Answer the request for roots that the server sends after the start of a session."""
    while any(each["method"] == "roots/list" for each in asked.get("inputRequests", {}).values()):
        answers: dict[str, Any] = {key: {"roots": []} for key in asked["inputRequests"]}
        more = {"requestState": asked["requestState"], "inputResponses": answers}
        asked = await result_of(upstream, call_tool(tool, arguments, _meta=CLIENT, **more))
    return asked


async def test_subscribed_resources_are_reported(declared: dict[str, Any]) -> None:
    async with connected(**declared) as upstream:
        resources = (await result_of(upstream, ask("resources/list")))["resources"]
        uri = resources[0]["uri"]
        listening = upstream.exchange(ask("subscriptions/listen", notifications={"resourceSubscriptions": [uri]}), ADA)
        async with asyncio.timeout(30), aclosing(listening) as messages:
            assert (await anext(messages)).params_object()["notifications"] == {"resourceSubscriptions": [uri]}
            update = asyncio.ensure_future(anext(messages))
            await result_of(upstream, call_tool("toggle-subscriber-updates"))
            assert (await update).params_object()["uri"] == uri
