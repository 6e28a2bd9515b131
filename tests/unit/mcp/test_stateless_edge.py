"""Clients of revision 2026-07-28 at the HTTP edge."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import Any

import pytest

from paddock.errors import Forbidden, McpTimeout, NotFound, PaddockError, QuotaExceeded, Unavailable
from paddock.mcp.protocol.endpoint import CallContext, McpEndpoint
from paddock.mcp.serving import stateless_request_handler
from paddock.mcp.serving.http_edge import McpHttpEdge
from paddock.mcp.serving.message_buffer import MAX_WAITING_MESSAGES
from paddock.testing.in_memory_mcp_endpoint import InMemoryMcpEndpoint, JsonRpcFailure, ToolRun
from tests.support.mcp_edge_client import (
    META,
    MODERN,
    EdgeClient,
    EventReader,
    document,
    edge_of,
    stateless_headers,
    stateless_message,
)

pytestmark = pytest.mark.anyio
CALL_ECHO = {"name": "echo", "arguments": {"text": "hello"}}
MIRRORED = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "size": {"type": "integer", "x-mcp-header": "Size"},
        "deep": {"type": "object", "properties": {"flag": {"type": "boolean", "x-mcp-header": "Flag"}}},
    },
}


@pytest.fixture
def endpoint() -> InMemoryMcpEndpoint:
    return InMemoryMcpEndpoint(resources={"x://a": "text"}, prompts={"greet": "Hello"})


@pytest.fixture
def client(endpoint: InMemoryMcpEndpoint) -> EdgeClient:
    return EdgeClient(edge_of(endpoint))


def error_of(reply: Any) -> tuple[int, int]:
    return reply.status, document(reply)["error"]["code"]


async def test_requests_are_answered_by_json(client: EdgeClient, endpoint: InMemoryMcpEndpoint) -> None:
    reply = await client.ask("tools/call", CALL_ECHO)
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    assert document(reply)["result"]["content"][0]["text"] == "hello" and document(reply)["id"] == 1
    listed = document(await client.ask("tools/list"))["result"]
    assert {"resultType", "ttlMs", "cacheScope"} <= set(listed)
    assert document(await client.ask("resources/read", {"uri": "x://a"}))["result"]["contents"][0]["text"] == "text"
    assert document(await client.ask("prompts/get", {"name": "greet"}))["result"]["messages"]
    assert document(await client.ask("server/discover"))["result"]["supportedVersions"] == [MODERN]
    assert "mcp-session-id" not in reply.headers
    assert endpoint.received[0].context == client.context


async def test_notifications_make_the_reply_a_stream(client: EdgeClient) -> None:
    reply = await client.ask("tools/call", {"name": "count", "arguments": {"to": 3}}, progressToken="p")
    assert reply.headers["content-type"] == "text/event-stream" and reply.headers["x-accel-buffering"] == "no"
    events = EventReader(reply)
    *progress, result = await events.rest()
    assert [event["params"]["progress"] for event in progress] == [1, 2, 3] and result["result"]["content"]
    assert not events.ids  # Streams of this revision cannot be resumed.
    await events.close()
    levels = {"io.modelcontextprotocol/logLevel": "error"}
    reply = await client.send(
        "POST",
        stateless_message("tools/call", {"name": "talk"}, **levels),
        stateless_headers("tools/call", {"name": "talk"}),
    )
    assert len(await EventReader(reply).rest()) == 5


async def test_silent_calls_become_streams_with_keep_alives(
    client: EdgeClient, endpoint: InMemoryMcpEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stateless_request_handler, "FIRST_MESSAGE_WAIT", 0.01)
    monkeypatch.setattr(stateless_request_handler, "KEEP_ALIVE_INTERVAL", 0.01)
    go_on = asyncio.Event()

    async def slow(run: ToolRun) -> str:
        await go_on.wait()
        return "late"

    endpoint.add_tool("slow", slow)
    events = EventReader(await client.ask("tools/call", {"name": "slow"}))
    assert events.reply.stream is not None
    assert (await events.reply.stream.next_chunk() or b"").startswith(b":")
    go_on.set()
    assert (await events.next_event())["result"]["content"][0]["text"] == "late"


async def test_clients_without_streams_get_the_result_alone(client: EdgeClient) -> None:
    params = {"name": "count", "arguments": {"to": 3}}
    headers = stateless_headers("tools/call", params) | {"accept": "application/json"}
    reply = await client.send("POST", stateless_message("tools/call", params, progressToken=1), headers)
    assert document(reply)["result"]["content"][0]["text"] == "done"
    headers = stateless_headers("subscriptions/listen", {}) | {"accept": "application/json"}
    reply = await client.send("POST", stateless_message("subscriptions/listen", {}), headers)
    assert reply.status == 406


async def test_disconnect_cancels_the_exchange(client: EdgeClient, endpoint: InMemoryMcpEndpoint) -> None:
    reply = await client.ask("tools/call", {"name": "sleep"}, progressToken=1)
    assert endpoint.under_way == 1 and reply.stream is not None
    await reply.stream.close()  # As for a client that disconnects before the first event.
    assert endpoint.cancelled == ["tools/call"] and endpoint.under_way == 0
    task = asyncio.ensure_future(client.ask("tools/call", {"name": "sleep"}))
    await endpoint.wait_for(lambda it: it.under_way)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert len(endpoint.cancelled) == 2 and endpoint.under_way == 0


async def test_unread_streams_stop_their_call(client: EdgeClient, endpoint: InMemoryMcpEndpoint) -> None:
    sent = 0

    class Flood:
        async def exchange(self, request: Any, context: CallContext) -> Any:
            nonlocal sent
            async with aclosing(endpoint.exchange(request, context)) as messages:
                async for message in messages:
                    for _ in range(10_000):
                        sent += 1
                        yield message

    params = {"name": "sleep"}
    client = EdgeClient(edge_of(Flood()))
    reply = await client.ask("tools/call", params, progressToken=1)
    for _ in range(1000):
        await asyncio.sleep(0)
    assert sent <= MAX_WAITING_MESSAGES + 3
    assert reply.stream is not None
    await reply.stream.close()
    assert endpoint.under_way == 0


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"mcp-name": "other"}, 400, -32020),
        ({"mcp-name": "echo, echo"}, 400, -32020),  # A header that was sent twice.
        ({"mcp-name": None}, 400, -32020),
        ({"mcp-name": "=?base64?ZWNobw=?="}, 400, -32020),
        ({"mcp-name": "ech\xf6"}, 400, -32020),
        ({"mcp-method": "tools/list"}, 400, -32020),
        ({"mcp-method": None}, 400, -32020),
        ({"mcp-protocol-version": None}, 400, -32020),
        ({"mcp-protocol-version": "2025-11-25"}, 400, -32020),
        ({"mcp-protocol-version": "2099-01-01"}, 400, -32020),
        ({"origin": "http://evil.example"}, 403, -32600),
        ({"content-type": "text/plain"}, 415, -32600),
    ],
)
async def test_headers_must_say_what_the_body_says(
    client: EdgeClient, endpoint: InMemoryMcpEndpoint, change: dict[str, str | None], status: int, code: int
) -> None:
    headers = {**stateless_headers("tools/call", CALL_ECHO), **change}
    sent = {name: value for name, value in headers.items() if value is not None}
    reply = await client.send("POST", stateless_message("tools/call", CALL_ECHO), sent)
    assert error_of(reply) == (status, code) and not endpoint.received


async def test_encoded_names_are_compared_decoded(client: EdgeClient, endpoint: InMemoryMcpEndpoint) -> None:
    async def greet(run: ToolRun) -> str:
        return "hi"

    endpoint.add_tool("grüße", greet)
    reply = await client.ask("tools/call", {"name": "grüße"})
    assert document(reply)["result"]["content"][0]["text"] == "hi"


async def test_duplicate_keys_are_removed_before_forwarding(client: EdgeClient, endpoint: InMemoryMcpEndpoint) -> None:
    message = json.dumps(stateless_message("tools/call", CALL_ECHO))
    body = message.replace('"name": "echo"', '"name": "fail", "name": "echo"').encode()
    await client.send("POST", body, stateless_headers("tools/call", CALL_ECHO))
    received = bytes(endpoint.received[-1].message.params or b"")
    assert b'"name":"echo"' in received and b"fail" not in received


async def test_numbers_and_unknown_fields_arrive_as_sent(client: EdgeClient, endpoint: InMemoryMcpEndpoint) -> None:
    params = '{"name":"echo","arguments":{"n":12345678901234567890123,"f":1.0},"x":[1e400],"_meta":%s}'
    body = b'{"jsonrpc":"2.0","id":"a","method":"tools/call","params":%s}' % (params % json.dumps(META)).encode()
    await client.send("POST", body, stateless_headers("tools/call", CALL_ECHO))
    received = bytes(endpoint.received[-1].message.params or b"")
    assert b'{"n":12345678901234567890123,"f":1.0}' in received and b"[1e400]" in received


@pytest.mark.parametrize(
    ("arguments", "headers", "accepted"),
    [
        ({"region": "eu"}, {"mcp-param-region": "eu"}, True),
        ({"region": "eu"}, {"mcp-param-region": "=?base64?ZXU=?="}, True),
        ({"region": "eu"}, {"mcp-param-region": "=?base64?ZXU?="}, False),
        ({"region": "eu"}, {"mcp-param-region": "us"}, False),
        ({"region": "eu"}, {"mcp-param-region": "eu, us"}, False),
        ({"region": "eu"}, {}, False),
        ({"region": None}, {}, True),
        ({"region": None}, {"mcp-param-region": "null"}, False),
        ({}, {"mcp-param-region": "eu"}, False),
        ({"size": 42}, {"mcp-param-size": "42.0"}, True),
        ({"size": 42}, {"mcp-param-size": "43"}, False),
        ({"deep": {"flag": True}}, {"mcp-param-flag": "true"}, True),
        ({"deep": {"flag": True}}, {"mcp-param-flag": "True"}, False),
        ({}, {"mcp-param-unknown": "x"}, True),
    ],
)
async def test_parameter_headers_must_repeat_arguments(
    client: EdgeClient,
    endpoint: InMemoryMcpEndpoint,
    arguments: dict[str, Any],
    headers: dict[str, str],
    accepted: bool,
) -> None:
    endpoint.add_tool("query", _said, schema=MIRRORED)
    endpoint.page_size = 2  # The tool is on a later page.
    params = {"name": "query", "arguments": arguments}
    reply = await client.send(
        "POST", stateless_message("tools/call", params), stateless_headers("tools/call", params) | headers
    )
    calls = [each for each in endpoint.received if each.message.method == "tools/call"]
    assert (reply.status == 200 and len(calls) == 1) if accepted else (error_of(reply) == (400, -32020) and not calls)


async def test_changed_lists_change_what_is_checked(client: EdgeClient, endpoint: InMemoryMcpEndpoint) -> None:
    endpoint.add_tool("query", _said)
    params = {"name": "query", "arguments": {"region": "eu"}}
    assert (await client.ask("tools/call", params)).status == 200
    endpoint.add_tool("query", _said, schema=MIRRORED)
    await client.ask("tools/list")
    assert error_of(await client.ask("tools/call", params)) == (400, -32020)
    endpoint.add_tool("query", _said)
    await client.ask("tools/list")
    lists = sum(each.message.method == "tools/list" for each in endpoint.received)
    assert (await client.ask("tools/call", params)).status == 200
    assert sum(each.message.method == "tools/list" for each in endpoint.received) == lists


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b"\xff\xfe{\x00}\x00", -32700),
        ('{"jsonrpc":"2.0"}'.encode("utf-16"), -32700),
        (b"[" * 100_000, -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001, -32700),
        (b"[]", -32600),
        (json.dumps([stateless_message("tools/list", {})] * 2).encode(), -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"tools/list"}', -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"tools/list"}', -32600),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"tools/list"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":[]}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}', -32602),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":7}}', -32602),
        (b"42", -32600),
    ],
)
async def test_malformed_bodies_are_refused(
    client: EdgeClient, endpoint: InMemoryMcpEndpoint, body: bytes, code: int
) -> None:
    reply = await client.send("POST", body, stateless_headers("tools/list", {}))
    assert error_of(reply) == (400, code) and not endpoint.received


async def test_batches_are_refused_with_the_reason(client: EdgeClient) -> None:
    reply = await client.send("POST", b"[{}]", {"content-type": "application/json"})
    assert reply.status == 400 and "batches are not supported" in document(reply)["error"]["message"]


async def test_unsupported_revisions_name_the_supported_ones(client: EdgeClient) -> None:
    other = {"io.modelcontextprotocol/protocolVersion": "2099-01-01"}
    headers = stateless_headers("tools/list", {}) | {"mcp-protocol-version": "2099-01-01"}
    reply = await client.send("POST", stateless_message("tools/list", {}, **other), headers)
    assert error_of(reply) == (400, -32022)
    assert document(reply)["error"]["data"] == {"supported": [MODERN], "requested": "2099-01-01"}
    assert document(reply)["id"] == 1


async def test_errors_have_the_statuses_of_the_revision(client: EdgeClient, endpoint: InMemoryMcpEndpoint) -> None:
    assert error_of(await client.ask("odd/method")) == (404, -32601)
    before = len(endpoint.received)
    for method in ("initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"):
        assert error_of(await client.ask(method)) == (404, -32601)
    assert len(endpoint.received) == before
    assert error_of(await client.ask("tools/call", {"name": "ask"})) == (400, -32021)
    assert error_of(await client.ask("tools/call", {"name": "nothing"})) == (400, -32602)

    async def odd(run: ToolRun) -> str:
        raise JsonRpcFailure(-31999, "an own code")

    endpoint.add_tool("odd", odd)
    assert error_of(await client.ask("tools/call", {"name": "odd"})) == (200, -31999)


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (Unavailable("calc is starting"), 502),
        (McpTimeout("calc did not answer"), 504),
        (Forbidden("not yours"), 403),
        (NotFound("no such tool"), 404),
        (QuotaExceeded("too many calls"), 429),
    ],
)
async def test_failures_say_the_reason(
    client: EdgeClient, endpoint: InMemoryMcpEndpoint, failure: PaddockError, status: int
) -> None:
    endpoint.unavailable = failure
    reply = await client.ask("tools/list")
    error = document(reply)["error"]
    assert (reply.status, error["message"], error["data"]) == (status, failure.message, {"code": failure.code})
    assert document(reply)["id"] == 1


async def test_unexpected_errors_reveal_nothing(client: EdgeClient) -> None:
    class Broken:
        async def exchange(self, request: Any, context: CallContext) -> Any:
            raise RuntimeError("secret detail")
            yield

    reply = await EdgeClient(edge_of(Broken())).ask("tools/list")
    assert document(reply)["error"]["code"] == -32603 and b"secret" not in reply.body


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
@pytest.mark.parametrize(
    ("error", "status"), [(NotFound("there is no server x"), 404), (Forbidden("x is not yours"), 403)]
)
async def test_unknown_and_denied_servers_say_why(method: str, error: PaddockError, status: int) -> None:
    def resolve(path: str, context: CallContext) -> McpEndpoint:
        raise error

    client = EdgeClient(McpHttpEdge(resolve))
    body = json.dumps(stateless_message("tools/list", {})).encode() if method == "POST" else b""
    reply = await client.send(method, body, stateless_headers("tools/list", {}))
    assert reply.status == status and document(reply)["error"]["message"] == error.message


async def test_other_methods_and_notifications(client: EdgeClient, endpoint: InMemoryMcpEndpoint) -> None:
    for method in ("GET", "DELETE", "PUT"):
        reply = await client.send(method, headers={"mcp-protocol-version": MODERN})
        assert reply.status == 405 and "POST" in reply.headers["allow"]
    note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    assert (await client.send("POST", note, {"mcp-protocol-version": MODERN})).status == 202
    assert (await client.send("POST", note, {"mcp-protocol-version": "2099-01-01"})).status == 400
    assert not endpoint.received


async def test_subscriptions_are_streams(client: EdgeClient, endpoint: InMemoryMcpEndpoint) -> None:
    events = EventReader(await client.ask("subscriptions/listen", {"notifications": {"toolsListChanged": True}}))
    first = await events.next_event()
    assert first["method"] == "notifications/subscriptions/acknowledged"
    endpoint.remove_tool("echo")
    assert (await events.next_event())["method"] == "notifications/tools/list_changed"
    endpoint.end_subscriptions()
    assert (await events.next_event())["result"]["resultType"] == "complete"
    assert await events.next_event() is None


async def test_subscriptions_end_with_the_server(client: EdgeClient, endpoint: InMemoryMcpEndpoint) -> None:
    events = EventReader(await client.ask("subscriptions/listen", {"notifications": {"toolsListChanged": True}}))
    await events.next_event()
    client.edge.end_subscriptions()
    last = await events.next_event()
    assert (last["id"], last["result"]["resultType"]) == (1, "complete")
    assert last["result"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": 1}
    assert await events.next_event() is None
    await events.close()
    assert endpoint.under_way == 0
    client.edge.end_subscriptions()  # None is left.


async def test_line_breaks_between_tokens_stay_in_one_event(client: EdgeClient) -> None:
    pretty = json.dumps(stateless_message("subscriptions/listen", {}, number="a\nb"), indent=1).encode()
    wanted = {"notifications": {"toolsListChanged": True}}
    message = json.dumps(stateless_message("subscriptions/listen", wanted), indent=2).replace("\n", "\r\n")
    for body in (pretty, message.encode()):
        events = EventReader(await client.send("POST", body, stateless_headers("subscriptions/listen", {})))
        assert await events.next_event()
        await events.close()


async def test_input_requests_pass_untouched(client: EdgeClient) -> None:
    capable: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
    headers = stateless_headers("tools/call", {"name": "ask"})
    reply = await client.send("POST", stateless_message("tools/call", {"name": "ask"}, **capable), headers)
    result = document(reply)["result"]
    assert result["resultType"] == "input_required" and result["requestState"] == "asked once"
    again = {
        "name": "ask",
        "inputResponses": {"name": {"action": "accept", "content": {"name": "Ada"}}},
        "requestState": result["requestState"],
    }
    reply = await client.send("POST", stateless_message("tools/call", again, 2, **capable), headers)
    assert document(reply)["result"]["content"][0]["text"] == "accept Ada"


async def _said(run: ToolRun) -> str:
    return "said"
