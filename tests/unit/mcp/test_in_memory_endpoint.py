"""The scriptable endpoint keeps the contract of endpoints."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from paddock.errors import Unavailable
from paddock.mcp.protocol.endpoint import CallContext
from paddock.mcp.protocol.messages import INVALID_PARAMS, METHOD_NOT_FOUND, JsonRpcMessage, make_request
from paddock.testing.in_memory_mcp_endpoint import InMemoryMcpEndpoint

pytestmark = pytest.mark.anyio
ME = CallContext(tenant="me", caller="key-1")


async def ask(endpoint: InMemoryMcpEndpoint, method: str, **params: Any) -> list[JsonRpcMessage]:
    return [message async for message in endpoint.exchange(make_request(7, method, params), ME)]


async def test_answers_follow_their_notifications() -> None:
    endpoint = InMemoryMcpEndpoint()
    meta = {"progressToken": "p", "io.modelcontextprotocol/logLevel": "error"}
    counted = await ask(endpoint, "tools/call", name="count", arguments={"to": 2}, _meta=meta)
    assert [message.params_object().get("progress") for message in counted] == [1, 2, None]
    assert counted[-1].id == 7 and counted[-1].result_object()["content"][0]["text"] == "done"
    assert len(await ask(endpoint, "tools/call", name="talk", _meta=meta)) == 5
    (failed,) = await ask(endpoint, "tools/call", name="nothing")
    assert failed.error_object()["code"] == INVALID_PARAMS
    (unknown,) = await ask(endpoint, "odd/method")
    assert unknown.error_object()["code"] == METHOD_NOT_FOUND


async def test_input_is_requested_and_used() -> None:
    endpoint = InMemoryMcpEndpoint()
    meta: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
    (needed,) = await ask(endpoint, "tools/call", name="ask", _meta=meta)
    result = needed.result_object()
    assert (
        result["resultType"] == "input_required" and result["inputRequests"]["name"]["method"] == "elicitation/create"
    )
    responses = {"name": {"action": "accept", "content": {"name": "Ada"}}}
    (answered,) = await ask(
        endpoint, "tools/call", name="ask", _meta=meta, inputResponses=responses, requestState=result["requestState"]
    )
    assert answered.result_object()["content"][0]["text"] == "accept Ada"


async def test_closing_cancels_the_request() -> None:
    endpoint = InMemoryMcpEndpoint()
    exchange = endpoint.exchange(make_request(1, "tools/call", {"name": "sleep", "_meta": {"progressToken": 1}}), ME)
    assert (await anext(exchange)).method == "notifications/progress"
    await exchange.aclose()
    assert endpoint.cancelled == ["tools/call"] and endpoint.under_way == 0
    task = asyncio.ensure_future(ask(endpoint, "tools/call", name="sleep"))
    await endpoint.wait_for(lambda it: it.under_way)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert len(endpoint.cancelled) == 2 and endpoint.under_way == 0


async def test_subscriptions_get_what_they_asked_for() -> None:
    endpoint = InMemoryMcpEndpoint()
    wanted = {"notifications": {"toolsListChanged": True, "resourceSubscriptions": ["x://a"]}}
    task = asyncio.ensure_future(ask(endpoint, "subscriptions/listen", **wanted))
    await endpoint.wait_for(lambda it: it.subscriptions)
    endpoint.announce("notifications/resources/updated", {"uri": "x://a"})
    endpoint.announce("notifications/resources/updated", {"uri": "x://b"})
    endpoint.announce("notifications/prompts/list_changed")
    endpoint.remove_tool("echo")
    endpoint.end_subscriptions()
    methods = [message.method for message in await task]
    assert methods[:3] == [
        "notifications/subscriptions/acknowledged", "notifications/resources/updated",
        "notifications/tools/list_changed",
    ]  # fmt: skip
    assert len(methods) == 4


async def test_scripted_failures_are_raised() -> None:
    endpoint = InMemoryMcpEndpoint(failure=Unavailable("it is down"))
    assert len(await ask(endpoint, "server/discover")) == 1
    with pytest.raises(Unavailable, match="it is down"):
        await ask(endpoint, "tools/list")
