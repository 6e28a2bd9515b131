"""Typed calls of tools over gRPC, and the health service."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from paddock.mcp.rpc.v1 import mcp_pb2, mcp_pb2_grpc

from .rpc_gateway import KEY, Gateway

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def typed(gateway: Gateway, key: str | None = KEY) -> AsyncIterator[tuple[Any, Any]]:
    async with grpc.aio.insecure_channel(gateway.address) as channel:
        stub = mcp_pb2_grpc.ToolsStub(channel)  # type: ignore[no-untyped-call]
        yield stub, (("authorization", f"Bearer {key}"),) if key else None


async def test_typed_calls(gateway: Gateway) -> None:
    async with typed(gateway) as (tools, key):
        listed = await tools.ListTools(mcp_pb2.ListToolsRequest(target="demo"), metadata=key)
        echo = next(each for each in listed.tools if each.name == "echo")
        assert json.loads(echo.input_schema_json) == {"type": "object"} and not listed.next_cursor
        asked = mcp_pb2.CallToolRequest(target="demo", name="count", arguments_json=b'{"to": 2}')
        events = [event async for event in tools.CallTool(asked, metadata=key)]
        assert [each.WhichOneof("event") for each in events] == ["progress", "progress", "result"]
        assert events[0].progress.progress == 1 and events[0].progress.total == 2
        assert events[2].result.text == "done" and json.loads(events[2].result.result_json)["resultType"] == "complete"
        failed = mcp_pb2.CallToolRequest(target="demo", name="fail")
        (event,) = [event async for event in tools.CallTool(failed, metadata=key)]
        assert event.result.is_error and event.result.text == "it failed"
        unknown = mcp_pb2.CallToolRequest(target="demo", name="nothing")
        (event,) = [event async for event in tools.CallTool(unknown, metadata=key)]
        assert event.error.code == -32602 and "nothing" in event.error.message


async def test_typed_pages(gateway: Gateway) -> None:
    gateway.demo.page_size = 4
    async with typed(gateway) as (tools, key):
        first = await tools.ListTools(mcp_pb2.ListToolsRequest(target="demo"), metadata=key)
        second = await tools.ListTools(mcp_pb2.ListToolsRequest(target="demo", cursor=first.next_cursor), metadata=key)
        assert len(first.tools) == 4 and first.next_cursor and not second.next_cursor
        assert len({each.name for each in (*first.tools, *second.tools)}) == 6


async def test_typed_calls_that_need_input(gateway: Gateway) -> None:
    async with typed(gateway) as (tools, key):
        asked = mcp_pb2.CallToolRequest(target="demo", name="ask", capabilities_json=b'{"elicitation": {}}')
        (event,) = [event async for event in tools.CallTool(asked, metadata=key)]
        requests = json.loads(event.input_required.input_requests_json)
        assert requests["name"]["method"] == "elicitation/create"
        answered = mcp_pb2.CallToolRequest(
            target="demo",
            name="ask",
            input_responses_json=b'{"name": {"action": "accept", "content": {"name": "Ada"}}}',
            request_state=event.input_required.request_state,
        )
        (event,) = [event async for event in tools.CallTool(answered, metadata=key)]
        assert event.result.text == "accept Ada"


@pytest.mark.parametrize(
    ("request_fields", "key", "code"),
    [
        ({"target": "nothing"}, KEY, grpc.StatusCode.NOT_FOUND),
        ({"target": "denied"}, KEY, grpc.StatusCode.PERMISSION_DENIED),
        ({"target": "demo", "arguments_json": b"[]"}, KEY, grpc.StatusCode.INVALID_ARGUMENT),
        ({"target": "demo", "arguments_json": b"{"}, KEY, grpc.StatusCode.INVALID_ARGUMENT),
        ({"target": "demo"}, "bad", grpc.StatusCode.UNAUTHENTICATED),
        ({"target": "demo"}, None, grpc.StatusCode.UNAUTHENTICATED),
    ],
)
async def test_typed_refusals(
    gateway: Gateway, request_fields: dict[str, Any], key: str | None, code: grpc.StatusCode
) -> None:
    async with typed(gateway, key) as (tools, metadata):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            async for _ in tools.CallTool(mcp_pb2.CallToolRequest(name="echo", **request_fields), metadata=metadata):
                pass
        assert refused.value.code() == code and refused.value.details()


async def test_cancelling_a_typed_call_cancels_it_at_the_server(gateway: Gateway) -> None:
    async with typed(gateway) as (tools, key):
        calling = tools.CallTool(mcp_pb2.CallToolRequest(target="demo", name="sleep"), metadata=key)
        assert (await calling.read()).HasField("progress")
        calling.cancel()
        await gateway.demo.wait_for(lambda demo: demo.under_way == 0)
        late = tools.CallTool(mcp_pb2.CallToolRequest(target="demo", name="sleep"), metadata=key, timeout=0.3)
        with pytest.raises(grpc.aio.AioRpcError) as expired:
            async for _ in late:
                pass
        assert expired.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        await gateway.demo.wait_for(lambda demo: demo.under_way == 0)


async def test_health_needs_no_key(gateway: Gateway) -> None:
    async with grpc.aio.insecure_channel(gateway.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", "paddock.mcp.v1.Transport", "paddock.mcp.v1.Tools"):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
