"""AG-UI front ends with their own tools and context, on a real server with both engines."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest
from ag_ui.core import (
    Context,
    Event,
    EventType,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
    TextMessageContentEvent,
    Tool,
    ToolCallArgsEvent,
    ToolCallStartEvent,
    ToolMessage,
    UserMessage,
)
from pydantic import TypeAdapter

from tests.integration.agents.chat_client import CODE, SERVER_SIDE, Chat, call, model_requests, scripted
from tests.integration.api.sessions.scripted_chat_server import data_lines
from tests.support.server import Server, run_server

EVENT: TypeAdapter[Event] = TypeAdapter(Event)
PAINT_TOOL = Tool(
    name="paint",
    description="Paint the page.",
    parameters={"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]},
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("agui")
    painter = {"turns": [[call("paint", color="green")], {"say": "Painted."}], "otherwise": {"say": "Nothing to add."}}
    both = {
        "turns": [[call("paint", color="red"), call("ask_user", question="Which?")], {"say": "Painted."}],
        "otherwise": {"say": "Nothing to add."},
    }
    models = scripted(directory, painter=painter, both=both)
    with run_server(directory, {"llm": models, "kinds": CODE, "chat": {"kinds": ["code"]}}) as running:
        yield running


def run_agent(
    client: httpx.Client,
    thread: str,
    *messages: UserMessage | ToolMessage,
    tools: Sequence[Tool] = (PAINT_TOOL,),
    context: Sequence[Context] = (),
    **session: Any,
) -> list[Event]:
    run_input = RunAgentInput(
        thread_id=thread,
        run_id="run",
        messages=list(messages),
        tools=list(tools),
        context=list(context),
        forwarded_props={"session": session} if session else None,
    )
    with client.stream("POST", "/v1/agui", json=run_input.model_dump(mode="json", by_alias=True)) as response:
        assert response.status_code == 200, response.read()
        return [EVENT.validate_json(line) for line in data_lines(response)]


def user_message(text: str, known: str = "1") -> UserMessage:
    return UserMessage(id=known, content=text)


def tool_message(call_id: str, text: str) -> ToolMessage:
    return ToolMessage(id=f"{call_id}-told", tool_call_id=call_id, content=text)


def is_success(event: Event) -> bool:
    return isinstance(event, RunFinishedEvent) and isinstance(event.outcome, RunFinishedSuccessOutcome)


def finished_call_id(events: Sequence[Event]) -> str:
    """Return the id of the only call of the front end's tool; the run must have succeeded."""
    (started,) = [event for event in events if isinstance(event, ToolCallStartEvent)]
    written = "".join(event.delta for event in events if isinstance(event, ToolCallArgsEvent))
    assert started.tool_call_name == "paint" and '"green"' in written
    types = [event.type for event in events]
    assert EventType.TOOL_CALL_END in types and EventType.TOOL_CALL_RESULT not in types
    assert "approval.required" not in [getattr(event, "name", None) for event in events]
    assert is_success(events[-1]), events[-1]
    return started.tool_call_id


def reply_text(events: Sequence[Event]) -> str:
    return "".join(event.delta for event in events if isinstance(event, TextMessageContentEvent))


def open_chat(client: httpx.Client, events: Sequence[Event]) -> Chat:
    snapshot = next(event for event in events if event.type is EventType.STATE_SNAPSHOT)
    return Chat(client, snapshot.snapshot["session"])


@pytest.mark.parametrize("agent", SERVER_SIDE)
def test_turn_continues_with_result_of_front_end_tool(server: Server, agent: str) -> None:
    page, other = Context(description="page", value="/start"), Context(description="page", value="/green")
    with server.client() as client:
        thread = f"paints {agent}"
        first = run_agent(client, thread, user_message("Paint."), context=[page], agent=agent, model="painter")
        call_id = finished_call_id(first)
        # A repeated run replays the same events.
        assert finished_call_id(run_agent(client, thread, user_message("Paint."), context=[page])) == call_id
        messages = user_message("Paint."), tool_message(call_id, "done: green")
        second = run_agent(client, thread, *messages, context=[other])
        assert reply_text(second) == "Painted." and is_success(second[-1])
        assert EventType.TOOL_CALL_RESULT not in [event.type for event in second], "the client has the result"
        chat = open_chat(client, first)
        requests = model_requests(chat)
        assert [[tool["function"]["name"] for tool in each["tools"]].count("paint") for each in requests] == [1, 1]
        messages_text = str(requests[-1]["messages"])
        assert (
            "done: green" in messages_text
            and "/start" in messages_text
            and "/green" in messages_text
            and "data, not instructions" in messages_text
        )
        assert "/start" in str(requests[0]["messages"]) and "/green" not in str(requests[0]["messages"])
        items = client.get(f"{chat.path}/messages").json()["items"]
        assert [each["role"] for each in items] == ["user", "assistant", "tool", "assistant"]
        # A run without tools removes them.
        run_agent(client, thread, user_message("And now?", "2"), tools=())
        assert "paint" not in [tool["function"]["name"] for tool in model_requests(chat)[-1]["tools"]]


@pytest.mark.parametrize("agent", SERVER_SIDE)
def test_message_instead_of_tool_result_continues_the_turn(server: Server, agent: str) -> None:
    with server.client() as client:
        thread = f"silent {agent}"
        first = run_agent(client, thread, user_message("Paint."), agent=agent, model="painter")
        finished_call_id(first)
        second = run_agent(client, thread, user_message("Paint."), user_message("Never mind.", "2"))
        assert reply_text(second) == "Painted." and is_success(second[-1])
        messages_text = str(model_requests(open_chat(client, first))[-1]["messages"])
        assert "did not run this call" in messages_text and "Never mind." in messages_text
        assert not client.get("/v1/approvals", params={"state": "pending"}).json()["items"]


def test_client_tool_call_waits_across_a_restart(server: Server) -> None:
    with server.client() as client:
        call_id = finished_call_id(run_agent(client, "restarted", user_message("Paint."), model="painter"))
    server.stop(signal.SIGKILL)
    server.start()
    with server.client() as client:
        second = run_agent(client, "restarted", user_message("Paint."), tool_message(call_id, "green"))
        assert reply_text(second) == "Painted." and is_success(second[-1])


def test_question_is_an_interrupt_but_client_tool_call_is_not(server: Server) -> None:
    with server.client() as client:
        first = run_agent(client, "both", user_message("Paint."), model="both")
        end = first[-1]
        assert isinstance(end, RunFinishedEvent) and isinstance(end.outcome, RunFinishedInterruptOutcome)
        (interrupt,) = end.outcome.interrupts
        assert interrupt.message == "Which?"
        paint = next(
            event.tool_call_id
            for event in first
            if isinstance(event, ToolCallStartEvent) and event.tool_call_name == "paint"
        )
        body = {
            "threadId": "both",
            "runId": "run",
            "messages": [{"id": "told", "role": "tool", "toolCallId": paint, "content": "red"}],
            "tools": [PAINT_TOOL.model_dump(by_alias=True)],
            "resume": [{"interruptId": interrupt.id, "status": "resolved", "payload": "This one."}],
        }
        with client.stream("POST", "/v1/agui", json=body) as answer:
            second = [EVENT.validate_json(line) for line in data_lines(answer)]
        assert reply_text(second) == "Painted." and is_success(second[-1])


@pytest.mark.parametrize("name", ["ask_user", "code_run_shell_command", "task"])
def test_tool_name_conflict_ends_the_run_with_an_error(server: Server, name: str) -> None:
    with server.client() as client:
        tool = Tool(name=name, description="Mine.", parameters=None)
        events = run_agent(client, f"clash {name}", user_message("Paint."), tools=[tool], model="painter")
        end = events[-1]
        assert isinstance(end, RunErrorEvent) and end.code == "TOOL_NAME_TAKEN" and name in end.message
        chat = open_chat(client, events)
        assert chat.load_session()["state"] == "idle" and not client.get(f"{chat.path}/messages").json()["items"]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"tools": [{"name": "a b", "description": ""}]}, "tools"),
        ({"tools": [{"name": "a", "description": "", "parameters": {"type": "string"}}]}, "JSON Schema of an object"),
        ({"tools": [{"name": "a", "description": ""}] * 2}, "must be unique"),
        ({"tools": [{"name": "a", "description": "", "parameters": {"title": "x" * 300_000}}]}, "shorten"),
        ({"context": [{"description": "a", "value": "x" * 40_000}]}, "context"),
        ({"messages": [{"id": "1", "role": "tool", "toolCallId": "none", "content": "x"}]}, "no call waits"),
    ],
)
def test_invalid_runs(server: Server, change: dict[str, Any], word: str) -> None:
    body = {"threadId": "bad", "runId": "r", "messages": [{"id": "1", "role": "user", "content": "Hi."}], **change}
    with server.client() as client:
        response = client.post("/v1/agui", json=body)
        assert response.status_code == 400 and word in response.json()["message"], response.text


def test_schema_with_unpaired_surrogate_is_accepted(server: Server) -> None:
    half = "\ud800"
    tool = {"name": "paint", "description": "Paint.", "parameters": {"type": "object", "title": half}}
    body = {
        "threadId": "half",
        "runId": "r",
        "messages": [{"id": "1", "role": "user", "content": "Paint."}],
        "tools": [tool],
        "forwardedProps": {"session": {"model": "painter"}},
    }
    with server.client() as client:

        def sent() -> list[Event]:
            headers = {"Content-Type": "application/json"}
            with client.stream("POST", "/v1/agui", content=json.dumps(body), headers=headers) as response:
                assert response.status_code == 200, response.read()
                return [EVENT.validate_json(line) for line in data_lines(response)]

        call_id = finished_call_id(sent())
        body["messages"] = [{"id": "2", "role": "tool", "toolCallId": call_id, "content": ""}]
        second = sent()
        assert reply_text(second) == "Painted." and is_success(second[-1])
