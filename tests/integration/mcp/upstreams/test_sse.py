"""Servers of revision 2024-11-05, with an event stream and a second address for messages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from paddock.errors import Forbidden, McpTimeout, Unavailable
from tests.integration.mcp.upstreams.scripted_server import (
    ScriptedServer,
    call_tool,
    connected,
    messages_of,
    open_stream,
    result_of,
    scripted_server,
    send_event,
    text_result,
)

pytestmark = pytest.mark.anyio


class SseServer:
    """Answers on the event stream of the session that is named in the address of a message."""

    def __init__(self, scripted: ScriptedServer) -> None:
        scripted.discover = None
        scripted.answer = self._answer
        self.endpoint = "messages?session={}"
        self.streams: list[web.StreamResponse] = []
        self.methods: list[str] = []
        self.first_event: bytes | None = None
        self.cut = asyncio.Event()

    async def _answer(self, request: web.Request, message: Any) -> web.StreamResponse:
        if request.method == "GET":
            stream = await open_stream(request)
            self.streams.append(stream)
            address = self.endpoint.format(len(self.streams) - 1)
            await stream.write(self.first_event or f"event: endpoint\ndata: {address}\n\n".encode())
            await self.cut.wait()
            self.cut.clear()
            return stream
        if "session" not in request.query:
            return web.Response(status=405)
        stream = self.streams[int(request.query["session"])]
        self.methods.append(message["method"])
        if message["method"] == "initialize":
            result: Any = {"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}, "serverInfo": {}}
            await send_event(stream, {"jsonrpc": "2.0", "id": message["id"], "result": result})
        elif message["method"] == "tools/call":
            name = message["params"]["name"]
            if name == "cut":
                self.cut.set()
            elif name == "garbage":
                await stream.write(b"data: {]\n\n")
            elif name != "never":
                await send_event(stream, {"jsonrpc": "2.0", "id": "foreign", "result": {}})
                await send_event(stream, {"jsonrpc": "2.0", "id": message["id"], "result": text_result(name)})
        return web.Response(status=202)


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as server:
        yield server


@pytest.fixture
async def server(scripted: ScriptedServer) -> AsyncIterator[SseServer]:
    sse = SseServer(scripted)
    yield sse
    sse.cut.set()


@pytest.mark.parametrize("declared", [{"transport": "sse"}, {}])
async def test_the_transport_is_declared_or_found(
    scripted: ScriptedServer, server: SseServer, declared: dict[str, Any]
) -> None:
    async with connected(scripted.url, **declared) as upstream:
        calls = [result_of(upstream, call_tool(f"t{number}", message_id=number)) for number in range(5)]
        results = await asyncio.gather(*calls)
        assert [each["content"][0]["text"] for each in results] == [f"t{number}" for number in range(5)]
        assert len(server.streams) == 1


@pytest.mark.parametrize(
    "endpoint", ["http://169.254.169.254/{}", "//evil.example/{}", "http://user@127.0.0.1:1/{}", "https://[", "\xff"]
)
async def test_messages_go_to_the_same_origin_only(scripted: ScriptedServer, server: SseServer, endpoint: str) -> None:
    server.endpoint = endpoint
    async with connected(scripted.url, transport="sse") as upstream:
        with pytest.raises(Forbidden, match="another host"):
            await messages_of(upstream, call_tool("a"))
    assert [each.method for each in scripted.received] == ["GET"]


async def test_a_stream_without_an_address_times_out(scripted: ScriptedServer, server: SseServer) -> None:
    server.first_event = b": hello\n\n"
    async with connected(scripted.url, transport="sse", timeouts={"start": 0.3}) as upstream:
        with pytest.raises(McpTimeout):
            await messages_of(upstream, call_tool("a"))


@pytest.mark.parametrize(("tool", "reason"), [("cut", "closed its event stream"), ("garbage", "invalid content")])
async def test_a_broken_stream_ends_its_calls_and_the_next_call_opens_another(
    scripted: ScriptedServer, server: SseServer, tool: str, reason: str
) -> None:
    async with connected(scripted.url, transport="sse") as upstream:
        waiting = asyncio.ensure_future(messages_of(upstream, call_tool("never")))
        with pytest.raises(Unavailable, match=reason):
            await messages_of(upstream, call_tool(tool, message_id=2))
        with pytest.raises(Unavailable, match=reason):
            await waiting
        assert (await result_of(upstream, call_tool("again")))["content"][0]["text"] == "again"
        assert len(server.streams) == 2


async def test_cancelled_calls_are_cancelled_on_the_server(scripted: ScriptedServer, server: SseServer) -> None:
    async with connected(scripted.url, transport="sse", timeouts={"call": 0.2}) as upstream:
        with pytest.raises(McpTimeout):
            await messages_of(upstream, call_tool("never"))
        async with asyncio.timeout(10):
            while "notifications/cancelled" not in server.methods:
                await asyncio.sleep(0.01)
        call = next(each.json for each in scripted.received if b"tools/call" in each.body)
        cancelled = json.loads(scripted.received[-1].body)
        assert cancelled["params"]["requestId"] == call["id"]
