"""Clients of revisions with sessions, 2025-11-25 and before, at the HTTP edge."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from paddock.errors import Unavailable
from paddock.mcp.protocol.endpoint import CallContext
from paddock.mcp.serving import client_sessions
from paddock.mcp.serving.message_buffer import MAX_WAITING_MESSAGES
from paddock.mcp.serving.session_calls import MAX_INPUT_ROUNDS
from paddock.mcp.serving.session_request_handler import MAX_CALLS
from paddock.mcp.serving.session_streams import StreamTimes
from paddock.testing.in_memory_mcp_endpoint import InMemoryMcpEndpoint, InputRequired, ToolRun
from tests.support.mcp_edge_client import ME, EdgeClient, EventReader, document, edge_of

pytestmark = pytest.mark.anyio
FORM = {"mode": "form", "message": "Your name?", "requestedSchema": {"type": "object", "properties": {}}}
COUNT = {"name": "count", "arguments": {"to": 3}, "_meta": {"progressToken": "p"}}
SLEEP = {"name": "sleep", "_meta": {"progressToken": 1}}


@pytest.fixture
def endpoint() -> InMemoryMcpEndpoint:
    return InMemoryMcpEndpoint(instructions="Use it well.", resources={"x://a": "text"})


@pytest.fixture
def client(endpoint: InMemoryMcpEndpoint) -> EdgeClient:
    return EdgeClient(edge_of(endpoint))


def text_of(message: Any) -> str:
    return str(message["result"]["content"][0]["text"])


async def test_initialize_is_answered_from_the_discovery(client: EdgeClient, endpoint: InMemoryMcpEndpoint) -> None:
    result = await client.initialize("2025-06-18", {"roots": {}})
    assert result["protocolVersion"] == "2025-06-18" and result["instructions"] == "Use it well."
    assert result["serverInfo"] == {"name": "in-memory", "version": "1"}
    assert result["capabilities"]["resources"] == {"listChanged": True, "subscribe": True}
    assert len(client.session or "") >= 32
    (discovery,) = endpoint.received
    assert discovery.meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
    assert discovery.meta["io.modelcontextprotocol/clientCapabilities"] == {"roots": {}}
    assert discovery.meta["io.modelcontextprotocol/clientInfo"]["name"] == "tests"
    for asked, agreed in (("2024-11-05", "2024-11-05"), ("2026-07-28", "2025-11-25"), ("1.0", "2025-11-25")):
        assert (await client.initialize(asked))["protocolVersion"] == agreed


async def test_failed_discoveries_open_no_session(client: EdgeClient, endpoint: InMemoryMcpEndpoint) -> None:
    endpoint.unavailable = Unavailable("calc is starting")
    message = {"jsonrpc": "2.0", "id": 5, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}
    reply = await client.send("POST", message)
    assert reply.status == 502 and document(reply)["error"]["message"] == "calc is starting"
    assert "mcp-session-id" not in reply.headers and not len(client.edge.sessions)
    reply = await client.send("POST", {**message, "params": {}})
    assert reply.status == 400 and document(reply)["error"]["code"] == -32602


async def test_requests_get_the_metadata_of_the_session(client: EdgeClient, endpoint: InMemoryMcpEndpoint) -> None:
    await client.initialize(capabilities={"sampling": {}})
    params = {"name": "echo", "arguments": {"text": "hi", "n": 1}, "_meta": {"own": 1}}
    reply = await client.request("tools/call", params, "a")
    assert document(reply)["id"] == "a" and text_of(document(reply)) == "hi"
    assert "resultType" not in document(reply)["result"]
    received = endpoint.received[-1]
    assert received.meta["own"] == 1 and received.meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
    assert received.meta["io.modelcontextprotocol/clientCapabilities"] == {"sampling": {}}
    assert received.context.client_session == client.session
    listed = document(await client.request("tools/list"))["result"]
    assert listed["tools"] and not {"ttlMs", "cacheScope", "resultType"} & set(listed)


async def test_own_requests_of_sessions(client: EdgeClient, endpoint: InMemoryMcpEndpoint) -> None:
    await client.initialize()
    assert document(await client.request("ping"))["result"] == {}
    before = len(endpoint.received)
    assert document(await client.request("logging/setLevel", {"level": "error"}))["result"] == {}
    assert document(await client.request("logging/setLevel", {"level": "odd"}))["error"]["code"] == -32602
    assert len(endpoint.received) == before
    reply = await client.request("tools/call", {"name": "talk"})
    *logged, _ = await EventReader(reply).rest()
    assert [each["params"]["level"] for each in logged] == ["error", "critical", "alert", "emergency"]


async def test_unknown_resources_have_the_older_code(client: EdgeClient) -> None:
    await client.initialize()
    assert document(await client.request("resources/read", {"uri": "x://none"}))["error"]["code"] == -32002
    assert document(await client.request("tools/call", {"name": "none"}))["error"]["code"] == -32602


async def test_results_that_strict_clients_refuse_are_reduced(
    client: EdgeClient, endpoint: InMemoryMcpEndpoint
) -> None:
    async def numbers(run: ToolRun) -> dict[str, Any]:
        structured = [1, 2] if run.arguments.get("list") else {"n": 12345678901234567890123}
        return {"content": [{"type": "text", "text": "[1,2]"}], "structuredContent": structured}

    endpoint.add_tool("numbers", numbers, outputSchema={"type": "array"})
    endpoint.add_tool("other", numbers, outputSchema={"type": "object"})
    await client.initialize()
    tools = {tool["name"]: tool for tool in document(await client.request("tools/list"))["result"]["tools"]}
    assert "outputSchema" not in tools["numbers"] and "outputSchema" in tools["other"]
    result = document(await client.request("tools/call", {"name": "numbers", "arguments": {"list": True}}))["result"]
    assert "structuredContent" not in result
    reply = await client.request("tools/call", {"name": "numbers"})
    assert b'{"n":12345678901234567890123}' in reply.body


async def test_progress_is_streamed_with_the_clients_token(client: EdgeClient) -> None:
    await client.initialize()
    events = EventReader(await client.request("tools/call", COUNT, 9))
    *progress, result = await events.rest()
    assert progress[0]["params"] == {"progressToken": "p", "progress": 1, "total": 3}
    assert len(progress) == 3 and (result["id"], text_of(result)) == (9, "done")


@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25"])
async def test_input_requests_become_requests_to_the_client(
    client: EdgeClient, endpoint: InMemoryMcpEndpoint, revision: str
) -> None:
    await client.initialize(revision, {"elicitation": {}})
    events = EventReader(await client.request("tools/call", {"name": "ask"}, 3))
    asked = await events.next_event()
    assert asked["method"] == "elicitation/create" and ("mode" in asked["params"]) == (revision == "2025-11-25")
    answer = {"action": "accept", "content": {"name": "Ada"}}
    assert (await client.reply_to(asked["id"], result=answer)).status == 202
    result = await events.next_event()
    assert (result["id"], text_of(result)) == (3, "accept Ada")
    assert endpoint.received[-1].params["requestState"] == "asked once"
    assert await events.next_event() is None


async def test_several_inputs_are_asked_for_at_once(client: EdgeClient, endpoint: InMemoryMcpEndpoint) -> None:
    async def both(run: ToolRun) -> str:
        if run.input_responses:
            return json.dumps(run.input_responses, sort_keys=True)
        sampling = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}}
        raise InputRequired({"s": sampling, "r": {"method": "roots/list"}})

    endpoint.add_tool("both", both)
    await client.initialize(capabilities={"sampling": {}, "roots": {}})
    events = EventReader(await client.request("tools/call", {"name": "both"}))
    asked = {each["method"]: each["id"] for each in [await events.next_event(), await events.next_event()]}
    await client.reply_to(asked["roots/list"], result={"roots": []})
    await client.reply_to("unknown", result={})
    await client.reply_to(asked["sampling/createMessage"], result={"role": "assistant"})
    assert json.loads(text_of(await events.next_event())) == {"r": {"roots": []}, "s": {"role": "assistant"}}
    assert "requestState" not in endpoint.received[-1].params


async def test_clients_without_the_capability_get_a_clear_error(
    client: EdgeClient, endpoint: InMemoryMcpEndpoint
) -> None:
    async def ask(run: ToolRun) -> str:
        url = {"mode": "url", "message": "Sign in", "url": "https://x.example", "elicitationId": "1"}
        params = url if run.arguments.get("url") else FORM
        raise InputRequired({"name": {"method": "elicitation/create", "params": params}})

    endpoint.add_tool("ask", ask)
    await client.initialize()
    error = document(await client.request("tools/call", {"name": "ask"}))["error"]
    assert error["code"] == -32021 and "elicitation, which this client did not declare" in error["message"]
    await client.initialize(capabilities={"elicitation": {}})
    error = document(await client.request("tools/call", {"name": "ask", "arguments": {"url": True}}))["error"]
    assert error["code"] == -32021 and "elicitation.url" in error["message"]


async def test_refused_late_and_endless_input_ends_the_call(endpoint: InMemoryMcpEndpoint) -> None:
    async def again(run: ToolRun) -> str:
        raise InputRequired({"name": {"method": "elicitation/create", "params": FORM}}, state="more")

    endpoint.add_tool("again", again)
    client = EdgeClient(edge_of(endpoint, times=StreamTimes(client_answer=0.05)))
    await client.initialize(capabilities={"elicitation": {}})
    events = EventReader(await client.request("tools/call", {"name": "again"}))
    await client.reply_to((await events.next_event())["id"], error={"code": -1, "message": "the user said no"})
    error = (await events.next_event())["error"]
    assert error["code"] == -1 and "the user said no" in error["message"]
    events = EventReader(await client.request("tools/call", {"name": "again"}))
    asked = await events.next_event()
    cancelled, response = await events.rest()
    assert cancelled["params"]["requestId"] == asked["id"] and "did not answer" in response["error"]["message"]
    events = EventReader(await client.request("tools/call", {"name": "again"}))
    for _ in range(MAX_INPUT_ROUNDS):
        await client.reply_to((await events.next_event())["id"], result={"action": "accept", "content": {}})
    assert f"asked for input {MAX_INPUT_ROUNDS} times" in (await events.next_event())["error"]["message"]


async def test_cancelled_notifications_cancel_the_right_exchange(
    client: EdgeClient, endpoint: InMemoryMcpEndpoint
) -> None:
    await client.initialize()
    one, other = [EventReader(await client.request("tools/call", SLEEP, number)) for number in (1, "1")]
    assert endpoint.under_way == 2
    await client.tell("notifications/cancelled", {"requestId": "1"})
    assert endpoint.under_way == 1 and endpoint.cancelled == ["tools/call"]
    assert [each["method"] for each in await other.rest()] == ["notifications/progress"]
    assert (await one.next_event())["method"] == "notifications/progress"
    for odd in ({}, {"requestId": 99}, {"requestId": [1]}):
        assert (await client.tell("notifications/cancelled", odd)).status == 202
    assert endpoint.under_way == 1
    await client.edge.close()
    assert endpoint.under_way == 0


async def test_reused_ids_are_refused_while_under_way(client: EdgeClient, endpoint: InMemoryMcpEndpoint) -> None:
    await client.initialize()
    await client.request("tools/call", SLEEP, 7)
    reply = await client.request("tools/call", {"name": "echo"}, 7)
    assert reply.status == 400 and "use each id once" in document(reply)["error"]["message"]
    assert endpoint.under_way == 1
    await client.tell("notifications/cancelled", {"requestId": 7})
    assert (await client.request("tools/call", {"name": "echo"}, 7)).status == 200


async def test_sessions_work_only_for_their_owner_and_path(client: EdgeClient) -> None:
    await client.initialize()
    foreign = [
        EdgeClient(client.edge, CallContext(tenant="other", caller="key-1"), session=client.session),
        EdgeClient(client.edge, CallContext(tenant="me", caller="key-2"), session=client.session),
        EdgeClient(client.edge, CallContext(tenant="me", caller="key-1", sandbox="sb-1"), session=client.session),
        EdgeClient(client.edge, ME, path="other", session=client.session),
        EdgeClient(client.edge, ME, session="made-up"),
    ]
    for each in foreign:
        reply = await each.request("tools/list")
        assert reply.status == 404 and "Session not found" in document(reply)["error"]["message"]
        assert (await each.send("DELETE", headers=each.session_headers())).status == 404
        assert (await each.send("GET", headers=each.session_headers())).status == 404
        assert (await each.tell("notifications/cancelled", {"requestId": 1})).status == 404
    assert (await client.request("tools/list")).status == 200
    nobody = EdgeClient(client.edge)
    assert (await nobody.request("tools/list")).status == 400


async def test_deleted_sessions_end_with_their_calls(client: EdgeClient, endpoint: InMemoryMcpEndpoint) -> None:
    await client.initialize()
    call = EventReader(await client.request("tools/call", SLEEP))
    stream = await client.events()
    await endpoint.wait_for(lambda it: it.subscriptions)
    assert (await client.send("DELETE", headers=client.session_headers())).status == 200
    assert endpoint.under_way == 0 and await stream.next_event() is None
    assert len(await call.rest()) == 1
    assert (await client.request("tools/list")).status == 404


async def test_changes_come_on_the_stream_of_the_session(client: EdgeClient, endpoint: InMemoryMcpEndpoint) -> None:
    await client.initialize()
    assert document(await client.request("resources/subscribe", {"uri": "x://a"}))["result"] == {}
    assert not endpoint.subscriptions  # There is no stream yet.
    stream = await client.events()
    await endpoint.wait_for(lambda it: it.subscriptions)
    endpoint.announce("notifications/resources/updated", {"uri": "x://a"})
    changed = await stream.next_event()
    assert changed == {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "x://a"}}
    await client.request("resources/subscribe", {"uri": "x://b"})
    assert [each["resourceSubscriptions"] for each in endpoint.subscriptions] == [["x://a", "x://b"]]
    await client.request("resources/unsubscribe", {"uri": "x://a"})
    endpoint.announce("notifications/resources/updated", {"uri": "x://a"})
    endpoint.remove_tool("echo")
    assert (await stream.next_event())["method"] == "notifications/tools/list_changed"
    second = await client.events()  # A newer stream replaces the first.
    assert await stream.next_event() is None
    endpoint.announce("notifications/resources/updated", {"uri": "x://b"})
    assert (await second.next_event())["params"]["uri"] == "x://b"


async def test_subscriptions_end_when_nobody_listens(endpoint: InMemoryMcpEndpoint) -> None:
    client = EdgeClient(edge_of(endpoint, times=StreamTimes(resume=0.01)))
    await client.initialize()
    stream = await client.events()
    await endpoint.wait_for(lambda it: it.subscriptions)
    await stream.close()
    await endpoint.wait_for(lambda it: not it.under_way)
    await client.events()
    await endpoint.wait_for(lambda it: it.subscriptions)
    await client.edge.close()


async def test_streams_for_changes_end_with_the_server(client: EdgeClient, endpoint: InMemoryMcpEndpoint) -> None:
    await client.initialize()
    call = EventReader(await client.request("tools/call", SLEEP))
    stream = await client.events()
    await endpoint.wait_for(lambda it: it.subscriptions)
    client.edge.end_subscriptions()
    assert await stream.next_event() is None
    assert (await call.next_event())["method"] == "notifications/progress"  # Calls may finish.
    await client.edge.close()
    assert endpoint.under_way == 0


async def test_lost_connections_are_resumed(client: EdgeClient, endpoint: InMemoryMcpEndpoint) -> None:
    go_on = asyncio.Event()

    async def steps(run: ToolRun) -> str:
        for number in range(4):
            run.progress(number)
        await go_on.wait()
        return "finished"

    endpoint.add_tool("steps", steps)
    await client.initialize()
    call = EventReader(await client.request("tools/call", {"name": "steps", "_meta": {"progressToken": 1}}, 5))
    assert [(await call.next_event())["params"]["progress"] for _ in range(3)] == [0, 1, 2]
    await call.close()  # The client got two of three events.
    assert endpoint.under_way == 1
    resumed = await client.events(call.ids[2])
    assert [(await resumed.next_event())["params"]["progress"] for _ in range(2)] == [2, 3]
    await resumed.close()
    go_on.set()
    await endpoint.wait_for(lambda it: not it.under_way)
    finished = await client.events(resumed.ids[-1])
    assert text_of(await finished.next_event()) == "finished" and await finished.next_event() is None
    from_start = await client.events(call.ids[0])
    assert len(await from_start.rest()) == 5
    for odd in ("9-1", "x", "1-99", "0-1", "1-" + "1" * 100):
        assert (await client.send("GET", headers=client.session_headers(**{"last-event-id": odd}))).status == 400


async def test_abandoned_calls_are_cancelled(endpoint: InMemoryMcpEndpoint) -> None:
    client = EdgeClient(edge_of(endpoint, times=StreamTimes(resume=0.01)))
    await client.initialize()
    reply = await client.request("tools/call", SLEEP)
    assert reply.stream is not None
    await reply.stream.close()
    await endpoint.wait_for(lambda it: it.cancelled)
    assert endpoint.under_way == 0
    task = asyncio.ensure_future(client.request("tools/call", {"name": "sleep"}))
    await endpoint.wait_for(lambda it: it.under_way)
    task.cancel()  # No event was sent, so the client could not resume.
    await asyncio.gather(task, return_exceptions=True)
    assert endpoint.under_way == 0


async def test_polling_clients_are_sent_away_and_resume(endpoint: InMemoryMcpEndpoint) -> None:
    times = StreamTimes(first_message_resumable=0.01, poll_after=0.02)
    client = EdgeClient(edge_of(endpoint, times=times))
    go_on = asyncio.Event()

    async def slow(run: ToolRun) -> str:
        await go_on.wait()
        return "late"

    endpoint.add_tool("slow", slow)
    await client.initialize()
    call = EventReader(await client.request("tools/call", {"name": "slow"}))
    assert await call.next_event() is None and call.ids  # An empty first event, and then the end of the connection.
    await call.close()
    go_on.set()
    resumed = await client.events(call.ids[-1])
    assert text_of(await resumed.next_event()) == "late"


async def test_older_clients_get_no_empty_event(endpoint: InMemoryMcpEndpoint) -> None:
    client = EdgeClient(edge_of(endpoint))
    await client.initialize("2025-06-18")
    reply = await client.request("tools/call", COUNT)
    assert reply.stream is not None
    assert b"progress" in (await reply.stream.next_chunk() or b"")


async def test_unread_streams_stop_their_call(endpoint: InMemoryMcpEndpoint) -> None:
    sent = 0

    async def flood(run: ToolRun) -> str:
        nonlocal sent
        for number in range(10_000):
            run.progress(number)
            sent += 1
        return "done"

    endpoint.add_tool("flood", flood)
    client = EdgeClient(edge_of(endpoint))
    await client.initialize()
    await client.request("tools/call", {"name": "flood", "_meta": {"progressToken": 1}})
    (session,) = client.edge.sessions._sessions.values()
    (call,) = session.calls.values()
    for _ in range(1000):
        await asyncio.sleep(0)
    assert len(call.buffer._waiting) <= MAX_WAITING_MESSAGES and call.id in session.calls
    await client.edge.close()
    assert endpoint.under_way == 0


async def test_sessions_are_bounded_and_expire(endpoint: InMemoryMcpEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    edge = edge_of(endpoint, max_sessions=3)
    busy = EdgeClient(edge)
    await busy.initialize()
    await busy.request("tools/call", SLEEP)
    clients = [EdgeClient(edge) for _ in range(1000)]
    for client in clients:
        await client.initialize()
    assert len(edge.sessions) == 3
    assert (await clients[0].request("ping")).status == 404  # The oldest idle session made way.
    assert (await clients[-1].request("ping")).status == 200 and (await busy.request("ping", number=2)).status == 200
    for number, client in enumerate(clients[-2:]):
        await client.request("tools/call", SLEEP, number + 10)
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}
    reply = await busy.send("POST", message)
    assert reply.status == 429 and "sessions in use" in document(reply)["error"]["message"]
    await edge.close()
    assert endpoint.under_way == 0 and len(edge.sessions) == 0
    monkeypatch.setattr(client_sessions, "SWEEP_INTERVAL", 0.01)
    short = EdgeClient(edge_of(endpoint, idle_time=0.02))
    await short.initialize()
    while len(short.edge.sessions):
        await asyncio.sleep(0.005)
    assert (await short.request("ping")).status == 404


async def test_calls_of_a_session_are_bounded(client: EdgeClient, endpoint: InMemoryMcpEndpoint) -> None:
    await client.initialize()
    for number in range(MAX_CALLS):
        assert (await client.request("tools/call", SLEEP, number)).status == 200
    assert (await client.request("tools/call", {"name": "echo"}, "more")).status == 429
    await client.edge.close()
    assert endpoint.under_way == 0


@pytest.mark.parametrize("body", [b"[]", b"{", '{"jsonrpc":"2.0"}'.encode("utf-16"), b"[" * 100_000, b'{"a":1}'])
async def test_malformed_bodies_are_refused(client: EdgeClient, body: bytes) -> None:
    await client.initialize()
    assert (await client.send("POST", body, client.session_headers())).status == 400
    odd = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": [1]}
    reply = await client.send("POST", odd, client.session_headers())
    assert document(reply)["error"]["code"] == -32602
    assert (await client.send("POST", body, client.session_headers(origin="http://x.example"))).status == 403
    reply = await client.send("POST", odd, client.session_headers(**{"mcp-protocol-version": "1999-01-01"}))
    assert reply.status == 400


async def test_both_eras_work_at_one_address(client: EdgeClient) -> None:
    await client.initialize()
    assert (await client.ask("tools/list")).status == 200
    assert (await client.request("tools/list")).status == 200
