"""Clients of the HTTP+SSE transport of revision 2024-11-05, at the HTTP edge."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qs

import pytest

from paddock.errors import NotFound, Unavailable
from paddock.mcp.protocol.endpoint import CallContext, McpEndpoint
from paddock.mcp.serving import event_streams
from paddock.mcp.serving.event_streams import MAX_PENDING
from paddock.mcp.serving.http_edge import McpHttpEdge
from paddock.mcp.serving.http_messages import McpHttpReply, McpHttpRequest
from paddock.mcp.serving.session_request_handler import MAX_DECLARED_SIZE, MAX_URI_LENGTH
from paddock.mcp.serving.session_streams import StreamTimes
from paddock.testing.in_memory_mcp_endpoint import InMemoryMcpEndpoint
from tests.support.mcp_edge_client import BOTH, ME, EdgeClient, EventReader, document, edge_of

pytestmark = pytest.mark.anyio
SLEEP = {"name": "sleep", "_meta": {"progressToken": 1}}


@pytest.fixture
def endpoint() -> InMemoryMcpEndpoint:
    return InMemoryMcpEndpoint(instructions="Use it well.", resources={"x://a": "text"})


@dataclass
class StreamClient(EdgeClient):
    """One stream, and messages to the address that it names."""

    reader: EventReader | None = None
    address: str = ""

    async def open(self, query: str = "") -> McpHttpReply:
        headers = {"accept": "text/event-stream"}
        request = McpHttpRequest("GET", headers, b"", f"{self.path}/sse", self.context, query=query, mount="/mcp")
        reply = await self.edge.handle(request)
        if reply.stream is None:
            return reply
        opening = await reply.stream.next_chunk()
        assert opening is not None and opening.startswith(b"event: endpoint\r\ndata: /mcp/")
        self.address = opening.decode().split("data: ")[1].strip().removeprefix("/mcp/")
        self.reader = EventReader(reply)
        return reply

    async def say(self, message: dict[str, Any], **changes: Any) -> McpHttpReply:
        path, _, query = self.address.partition("?")
        request = McpHttpRequest(
            "POST",
            {"content-type": "application/json", "accept": BOTH},
            json.dumps({"jsonrpc": "2.0", **message}).encode(),
            path,
            self.context,
            query=query,
        )
        return await self.edge.handle(replace(request, **changes))

    async def greet(self, revision: str = "2024-11-05", capabilities: dict[str, Any] | None = None) -> Any:
        await self.open()
        info = {"name": "tests", "version": "1"}
        params = {"protocolVersion": revision, "capabilities": capabilities or {}, "clientInfo": info}
        assert (await self.say({"id": 0, "method": "initialize", "params": params})).status == 202
        assert (await self.say({"method": "notifications/initialized"})).status == 202
        return await self.next()

    async def next(self) -> Any:
        assert self.reader is not None
        async with asyncio.timeout(10):
            return await self.reader.next_event()

    async def ask_on_stream(self, method: str, params: dict[str, Any] | None = None, number: int = 1) -> Any:
        assert (await self.say({"id": number, "method": method, "params": params or {}})).status == 202
        return await self.next()

    async def leave(self) -> None:
        assert self.reader is not None
        await self.reader.close()


@pytest.fixture
def client(endpoint: InMemoryMcpEndpoint) -> StreamClient:
    return StreamClient(edge_of(endpoint))


async def test_calls_are_answered_on_the_stream(client: StreamClient, endpoint: InMemoryMcpEndpoint) -> None:
    greeting = await client.greet()
    assert greeting["id"] == 0 and greeting["result"]["protocolVersion"] == "2024-11-05"
    answer = await client.ask_on_stream("tools/call", {"name": "echo", "arguments": {"text": "hi"}}, 7)
    assert (answer["id"], answer["result"]["content"][0]["text"]) == (7, "hi")
    assert "resultType" not in answer["result"] and endpoint.received[-1].context.client_session
    count = {"name": "count", "arguments": {"to": 2}, "_meta": {"progressToken": "p"}}
    assert (await client.say({"id": 8, "method": "tools/call", "params": count})).status == 202
    said = [await client.next() for _ in range(3)]
    assert [each.get("method", each.get("id")) for each in said] == [*["notifications/progress"] * 2, 8]
    assert (await client.ask_on_stream("ping", number=9))["result"] == {}
    assert "initialized already" in (await client.ask_on_stream("initialize", number=10))["error"]["message"]
    await client.leave()
    assert not len(client.edge.sessions)


async def test_servers_ask_the_client_on_its_stream(client: StreamClient) -> None:
    await client.greet("2025-06-18", {"elicitation": {}})
    asked = await client.ask_on_stream("tools/call", {"name": "ask"}, 3)
    assert asked["method"] == "elicitation/create" and "mode" not in asked["params"]
    answer = {"action": "accept", "content": {"name": "Ada"}}
    assert (await client.say({"id": asked["id"], "result": answer})).status == 202
    answered = await client.next()
    assert answered["id"] == 3 and "Ada" in answered["result"]["content"][0]["text"]
    await client.leave()


async def test_changes_and_subscriptions_come_on_the_stream(
    client: StreamClient, endpoint: InMemoryMcpEndpoint
) -> None:
    await client.greet()
    await endpoint.wait_for(lambda each: each.subscriptions)
    assert (await client.ask_on_stream("resources/subscribe", {"uri": "x://a"}))["result"] == {}
    endpoint.announce("notifications/resources/updated", {"uri": "x://a"})
    assert (await client.next())["method"] == "notifications/resources/updated"
    long = "x://" + "a" * MAX_URI_LENGTH
    assert "at most" in (await client.ask_on_stream("resources/subscribe", {"uri": long}, 2))["error"]["message"]
    await client.leave()
    assert not endpoint.subscriptions


async def test_end_of_the_stream_cancels_its_calls(client: StreamClient, endpoint: InMemoryMcpEndpoint) -> None:
    await client.greet()
    assert (await client.ask_on_stream("tools/call", SLEEP))["method"] == "notifications/progress"
    await client.leave()
    assert endpoint.cancelled and (await client.say({"id": 2, "method": "ping"})).status == 404


async def test_cancelled_calls_are_not_answered(client: StreamClient, endpoint: InMemoryMcpEndpoint) -> None:
    await client.greet()
    assert (await client.ask_on_stream("tools/call", SLEEP, 5))["method"] == "notifications/progress"
    assert (await client.say({"method": "notifications/cancelled", "params": {"requestId": 5}})).status == 202
    assert endpoint.cancelled and (await client.ask_on_stream("ping", number=6))["id"] == 6
    await client.leave()


async def test_sessions_belong_to_their_caller_and_path(client: StreamClient) -> None:
    await client.greet()
    query = client.address.partition("?")[2]
    ping = {"id": 1, "method": "ping"}
    for changes in (
        {"context": replace(ME, caller="key-2")},
        {"context": replace(ME, tenant="other")},
        {"context": replace(ME, sandbox="sb-1")},
        {"path": "other/messages"},
        {"query": "session_id=" + "x" * 43},
        {"query": query + "&" + query},
        {"query": ""},
        {"query": "&".join("a=b" for _ in range(1000))},
    ):
        reply = await client.say(ping, **changes)
        assert reply.status == 404 and "Session not found" in document(reply)["error"]["message"], changes
    # Its id is no session of streamable HTTP, neither at the server's path nor at the stream's.
    for taken in ("calc", "calc/sse"):
        stranger = EdgeClient(client.edge, path=taken, session=query.partition("=")[2], revision="2024-11-05")
        assert (await stranger.request("ping")).status in (404, 405)
    assert (await client.ask_on_stream("ping"))["result"] == {}
    await client.leave()


async def test_streams_are_refused_as_servers_are(endpoint: InMemoryMcpEndpoint) -> None:
    def resolve(path: str, context: CallContext) -> McpEndpoint:
        raise NotFound(f"There is no MCP server {path!r}.")

    refused = await StreamClient(McpHttpEdge(resolve)).open()
    assert refused.status == 404 and "'calc'" in document(refused)["error"]["message"]
    client = StreamClient(edge_of(endpoint))
    post = await client.send("POST", {"jsonrpc": "2.0", "id": 1, "method": "ping"})
    assert post.status == 400
    client.path = "calc/sse"
    reply = await client.send("POST", b"{}", {"content-type": "application/json"})
    assert (reply.status, reply.headers["allow"]) == (405, "GET")
    assert (await client.send("GET", headers={"accept": "application/json"})).status == 406
    assert (await client.send("GET", headers={"origin": "http://evil.example"})).status == 403
    client.path = "calc/messages"
    assert (await client.send("GET")).status == 405
    client.path = "sets/sse"  # The set with this name, not a stream.
    assert (await client.send("GET", headers={"accept": "text/event-stream"})).status == 405


async def test_nothing_is_called_before_initialize(client: StreamClient, endpoint: InMemoryMcpEndpoint) -> None:
    await client.open()
    answer = await client.ask_on_stream("tools/call", {"name": "echo"})
    assert answer["error"]["message"] == "send initialize first" and not endpoint.received
    large = {"protocolVersion": "2024-11-05", "capabilities": {"x": "y" * MAX_DECLARED_SIZE}}
    assert "bytes" in (await client.ask_on_stream("initialize", large))["error"]["message"]
    endpoint.unavailable = Unavailable("calc is starting")
    hello = {"protocolVersion": "2024-11-05", "capabilities": {}}
    assert (await client.ask_on_stream("initialize", hello))["error"]["message"] == "calc is starting"
    endpoint.unavailable = None
    assert (await client.ask_on_stream("initialize", hello))["result"]["serverInfo"]["name"] == "in-memory"
    await client.leave()


async def test_messages_go_to_the_sandbox_of_the_stream(client: StreamClient) -> None:
    await client.open("sandbox=sb-1&session_id=mine&x=a%0d%0adata:%20b")
    query = parse_qs(client.address.partition("?")[2])
    assert query["sandbox"] == ["sb-1"] and len(query["session_id"]) == 1 and query["session_id"] != ["mine"]
    assert query["x"] == ["a\r\ndata: b"] and (await client.say({"id": 1, "method": "ping"})).status == 202
    await client.leave()
    assert (await client.open("&".join("a=b" for _ in range(1000)))).status == 400


async def test_silent_streams_end(endpoint: InMemoryMcpEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_streams, "INITIALIZE_TIME", 0.05)
    client = StreamClient(edge_of(endpoint, times=StreamTimes(keep_alive=0.02)))
    await client.open()
    assert await client.next() is None and client.reader is not None and client.reader.comments


async def test_unread_streams_stop_their_calls(client: StreamClient, endpoint: InMemoryMcpEndpoint) -> None:
    """A client that sends and never reads gets refusals after a bounded number of messages."""
    await client.greet()
    text = "x" * 300_000
    statuses = [
        (await client.say({"id": n, "method": "tools/call", "params": {"name": "echo", "arguments": {"text": text}}}))
        for n in range(1, 40)
    ]
    assert {each.status for each in statuses} == {202}
    pings = [(await client.say({"id": n, "method": "ping"})).status for n in range(100, 100 + 2 * MAX_PENDING)]
    assert pings.count(202) < MAX_PENDING and pings[-1] == 429
    assert client.reader is not None
    await client.leave()
    assert not len(client.edge.sessions)


async def test_thousands_of_streams_are_bounded(endpoint: InMemoryMcpEndpoint) -> None:
    edge = edge_of(endpoint, max_sessions=20)
    used = StreamClient(edge)
    await used.greet()
    silent = [StreamClient(edge) for _ in range(2000)]
    for each in silent:
        assert (await each.open()).status == 200
    assert len(edge.sessions) == 20
    # Streams that never said anything made way; the one in use did not.
    assert await silent[0].next() is None
    assert (await used.ask_on_stream("ping"))["result"] == {}
    for each in (used, *silent):
        await each.leave()
    greeted = [StreamClient(edge) for _ in range(20)]
    for each in greeted:
        await each.greet()
    refused = await StreamClient(edge).open()
    assert refused.status == 429 and "20 MCP sessions in use" in document(refused)["error"]["message"]
    assert (await StreamClient(edge, replace(ME, tenant="other")).open()).status == 200
    await edge.close()
    assert await greeted[0].next() is None


async def test_streams_end_with_the_server_once_their_calls_have_ended(
    client: StreamClient, endpoint: InMemoryMcpEndpoint
) -> None:
    idle = StreamClient(client.edge)
    await idle.greet()
    await client.greet()
    assert (await client.ask_on_stream("tools/call", SLEEP, 5))["method"] == "notifications/progress"
    client.edge.end_subscriptions()
    assert await idle.next() is None
    assert (await client.say({"id": 6, "method": "ping"})).status == 503
    await client.say({"method": "notifications/cancelled", "params": {"requestId": 5}})
    assert await client.next() is None
