"""AG-UI runs, validated with the types of its own package."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest
from ag_ui.core import (
    CustomEvent,
    Event,
    EventType,
    ImagePart,
    Interrupt,
    ResumeEntry,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedCancelledOutcome,
    RunFinishedEvent,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
    StateDeltaEvent,
    StateSnapshotEvent,
    TextMessageContentEvent,
    ToolCallArgsEvent,
    ToolCallResultEvent,
    UserMessage,
)
from pydantic import TypeAdapter

from paddock.api.sessions import agui_run
from paddock.model.session_events import (
    CallDelta,
    CallOutput,
    CallReady,
    CallResulted,
    CallStarted,
    MessageDelta,
    MessageEnded,
    MessageStarted,
    PlanChanged,
    SessionEvent,
    SessionStateChanged,
    StepEnded,
    StepStarted,
    ThoughtDelta,
    ThoughtEnded,
    ThoughtStarted,
    TurnEnded,
    TurnError,
)
from paddock.model.sessions import CallResult, FileContent, PlanStep, Session, SessionState, TextContent, ToolCall
from tests.integration.api.sessions.scripted_chat_server import (
    ScriptedChatServer,
    data_lines,
    finish_turn,
    run_scripted_chat_server,
)
from tests.support.server import eventually

EVENT: TypeAdapter[Event] = TypeAdapter(Event)
IMAGE_HASH = "0" * 64


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptedChatServer]:
    with run_scripted_chat_server(tmp_path_factory.mktemp("paddock")) as running:
        yield running


@pytest.fixture
def client(chat: ScriptedChatServer) -> Iterator[httpx.Client]:
    chat.sessions.turn_script = finish_turn
    with chat.client() as made:
        yield made


def run_agent(
    client: httpx.Client,
    thread: str,
    text: str | list[Any] | None = None,
    *,
    message: str = "1",
    resume: Sequence[ResumeEntry] = (),
    forwarded: Any = None,
) -> list[Event]:
    """Run an agent as a front end does and return the events."""
    run_input = RunAgentInput(
        thread_id=thread,
        run_id=f"run-{message}",
        messages=[] if text is None else [UserMessage(id=message, content=text)],
        tools=[],
        context=[],
        state={},
        forwarded_props=forwarded,
        resume=list(resume) or None,
    )
    body = run_input.model_dump(mode="json", by_alias=True)
    with client.stream("POST", "/v1/agui", json=body, headers={"Accept": "text/event-stream"}) as response:
        assert response.status_code == 200, response.read()
        events = [EVENT.validate_json(line) for line in data_lines(response)]
    check_event_order(events)
    return events


def check_event_order(events: Sequence[Event]) -> None:
    """Assert AG-UI's ordering rules: everything started is ended, and only started items get events."""
    opened: set[tuple[str, str]] = set()
    pairs = {
        "TEXT_MESSAGE": ("message_id", "START", "END"),
        "REASONING_MESSAGE": ("message_id", "START", "END"),
        "TOOL_CALL": ("tool_call_id", "START", "END"),
        "STEP": ("step_name", "STARTED", "FINISHED"),
        "REASONING": ("message_id", "START", "END"),
    }
    assert events[0].type is EventType.RUN_STARTED
    assert events[-1].type in (EventType.RUN_FINISHED, EventType.RUN_ERROR)
    for event in events[1:-1]:
        assert event.type not in (EventType.RUN_STARTED, EventType.RUN_FINISHED, EventType.RUN_ERROR)
        for name, (field, begin, end) in pairs.items():
            suffix = event.type.value.removeprefix(f"{name}_")
            if suffix in (begin, end, "CONTENT", "ARGS") and f"{name}_{suffix}" == event.type.value:
                item = (name, str(getattr(event, field)))
                assert (item in opened) is (suffix != begin), event
                if suffix in (begin, end):
                    opened ^= {item}
    assert not opened


def event_types(events: Sequence[Event]) -> list[str]:
    return [event.type.value for event in events]


def pending_interrupts(events: Sequence[Event]) -> list[Interrupt]:
    end = events[-1]
    assert isinstance(end, RunFinishedEvent) and isinstance(end.outcome, RunFinishedInterruptOutcome), end
    return end.outcome.interrupts


def working_turn(session: Session, turn: int) -> list[SessionEvent]:
    call = ToolCall(id="call-1", name="code_run", arguments={"code": "1"})
    unseen = ToolCall(id="call-2", name="code_look", arguments={})
    picture = FileContent(type="image", file=IMAGE_HASH, mime="image/png", name="a.png", size=4)
    return [
        StepStarted(turn=turn, step=1),
        MessageStarted(message_id="m1", turn=turn, step=1),
        ThoughtStarted(message_id="m1"),
        ThoughtDelta(message_id="m1", text="Hm."),
        ThoughtEnded(message_id="m1"),
        MessageDelta(message_id="m1", text="I will "),
        MessageDelta(message_id="m1", text="look."),
        CallStarted(message_id="m1", call_id="call-1", name="code_run"),
        CallDelta(call_id="call-1", text='{"code":'),
        CallDelta(call_id="call-1", text=' "1"}'),
        MessageEnded(message_id="m1", text="I will look.", calls=(call, unseen)),
        CallReady(call=call, kind="code", tool="run"),
        CallReady(call=unseen, kind="code", tool="look"),
        CallOutput(call_id="call-1", text="so far"),
        CallResulted(call_id="call-1", result=CallResult(content=(TextContent(text="1"),))),
        CallResulted(call_id="call-2", result=CallResult(content=(TextContent(text="See:"), picture))),
        PlanChanged(steps=(PlanStep(title="Look", state="done"),)),
        StepEnded(turn=turn, step=1, calls=2),
        MessageStarted(message_id="m2", turn=turn, step=2),
        MessageEnded(message_id="m2", text="Done."),
        TurnEnded(turn=turn, state="done"),
    ]


def test_complete_run_emits_all_event_types(chat: ScriptedChatServer, client: httpx.Client) -> None:
    chat.sessions.turn_script = working_turn
    events = run_agent(client, "a whole run", "Look.", forwarded={"session": {"title": "From outside"}})
    assert event_types(events) == [
        *("RUN_STARTED", "STATE_SNAPSHOT", "STEP_STARTED"),
        *("REASONING_START", "REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT"),
        *("REASONING_MESSAGE_END", "REASONING_END"),
        *("TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_CONTENT"),
        *("TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_ARGS", "TEXT_MESSAGE_END", "TOOL_CALL_END"),
        *("TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"),
        *("CUSTOM", "TOOL_CALL_RESULT", "TOOL_CALL_RESULT", "STATE_DELTA", "STEP_FINISHED"),
        *("TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "RUN_FINISHED"),
    ]
    texts = [event.delta for event in events if isinstance(event, TextMessageContentEvent)]
    assert texts == ["I will ", "look.", "Done."]
    arguments = [event.delta for event in events if isinstance(event, ToolCallArgsEvent)]
    assert arguments == ['{"code":', ' "1"}', "{}"]
    results = [event.content for event in events if isinstance(event, ToolCallResultEvent)]
    assert results[0] == "1" and isinstance(results[1][1], ImagePart)
    snapshot = next(event.snapshot for event in events if isinstance(event, StateSnapshotEvent))
    session = client.get(f"/v1/sessions/{snapshot['session']}").json()
    assert session["title"] == "From outside" and snapshot["plan"] == []
    assert results[1][1].source.value == f"/v1/sessions/{session['id']}/files/{IMAGE_HASH}"
    delta = next(event.delta for event in events if isinstance(event, StateDeltaEvent))
    assert delta[0].model_dump()["value"] == [{"title": "Look", "state": "done"}]
    end = events[-1]
    assert isinstance(end, RunFinishedEvent) and isinstance(end.outcome, RunFinishedSuccessOutcome)


def test_thread_is_one_session_and_messages_are_sent_once(chat: ScriptedChatServer, client: httpx.Client) -> None:
    first = run_agent(client, "thread", "One.", message="a")
    again = run_agent(client, "thread", "One.", message="a")
    assert event_types(first) == event_types(again)
    run_agent(client, "thread", "Two.", message="b")
    session = first[1].snapshot["session"]  # type: ignore[union-attr]
    run_agent(client, session, "Three.", message="c")
    items = client.get(f"/v1/sessions/{session}/messages").json()["items"]
    assert [item["content"][0]["text"] for item in items] == ["One.", "Two.", "Three."]


def test_pending_approval_is_an_interrupt_and_can_be_resumed(chat: ScriptedChatServer, client: httpx.Client) -> None:
    def require_two_approvals(session: Session, turn: int) -> list[SessionEvent]:
        first, second = (chat.sessions.require_approval(session, turn, f"call-{turn}-{n}") for n in (1, 2))
        return [first, second, TurnEnded(turn=turn, state="waiting")]

    chat.sessions.turn_script = require_two_approvals
    events = run_agent(client, "asks", "Delete it.")
    assert [event.name for event in events if isinstance(event, CustomEvent)] == ["approval.required"] * 2
    first, second = pending_interrupts(events)
    assert (first.reason, first.tool_call_id, second.tool_call_id) == ("approval", "call-1-1", "call-1-2")
    assert first.metadata is not None and first.metadata["arguments"] == {"command": "rm -r /"}
    # A message while approvals are pending leaves them pending.
    assert [each.id for each in pending_interrupts(run_agent(client, "asks", "Please.", message="2"))] == [
        first.id,
        second.id,
    ]
    # After one decision the other approval is still pending.
    first_entry = [ResumeEntry(interrupt_id=first.id, status="resolved", payload={"action": "approve"})]
    assert [each.id for each in pending_interrupts(run_agent(client, "asks", resume=first_entry))] == [second.id]
    chat.sessions.turn_script = finish_turn
    remaining = [ResumeEntry(interrupt_id=second.id, status="cancelled")]
    done = run_agent(client, "asks", forwarded={"resume": [entry.model_dump(by_alias=True) for entry in remaining]})
    assert isinstance(done[-1], RunFinishedEvent) and isinstance(done[-1].outcome, RunFinishedSuccessOutcome)
    states = {each["id"]: each["state"] for each in client.get("/v1/approvals").json()["items"]}
    assert (states[first.id], states[second.id]) == ("approved", "rejected")


@pytest.mark.parametrize(
    ("payload", "state"),
    [
        (True, "approved"),
        (False, "rejected"),
        ("approve", "approved"),
        ({"approved": False, "reason": "no"}, "rejected"),
        ({"action": "edit", "arguments": {"command": "ls"}}, "edited"),
        ({"action": "answer", "answer": "42"}, "answered"),
    ],
)
def test_resume_payloads_decide_approvals(
    chat: ScriptedChatServer, client: httpx.Client, payload: Any, state: str
) -> None:
    chat.sessions.turn_script = lambda session, turn: [
        chat.sessions.require_approval(session, turn, "call-1"),
        TurnEnded(turn=turn, state="waiting"),
    ]
    thread = f"ways {payload}"
    (interrupt,) = pending_interrupts(run_agent(client, thread, "Go."))
    chat.sessions.turn_script = finish_turn
    run_agent(client, thread, resume=[ResumeEntry(interrupt_id=interrupt.id, status="resolved", payload=payload)])
    approvals = client.get("/v1/approvals").json()["items"]
    assert next(each["state"] for each in approvals if each["id"] == interrupt.id) == state


def test_invalid_resume_entries_are_rejected(chat: ScriptedChatServer, client: httpx.Client) -> None:
    chat.sessions.turn_script = lambda session, turn: [
        chat.sessions.require_approval(session, turn, "call-1"),
        TurnEnded(turn=turn, state="waiting"),
    ]
    (interrupt,) = pending_interrupts(run_agent(client, "decides nothing", "Go."))
    payloads: list[Any] = [
        None,
        5,
        [],
        {},
        "perhaps",
        {"action": "edit", "arguments": 5},
        {"action": "approve", "x": 1},
    ]
    for payload in payloads:
        entry = {"interruptId": interrupt.id, "status": "resolved", "payload": payload}
        body = {"threadId": "decides nothing", "runId": "r", "messages": [], "resume": [entry]}
        response = client.post("/v1/agui", json=body)
        assert response.status_code == 400 and response.json()["message"], (payload, response.text)
    wrong = {"interruptId": interrupt.id, "status": "resolved", "payload": {"action": "approve", "digest": "0" * 64}}
    body = {"threadId": "decides nothing", "runId": "r", "messages": [], "resume": [wrong]}
    assert client.post("/v1/agui", json=body).status_code == 409


def test_approval_within_a_turn_is_an_interrupt(
    chat: ScriptedChatServer, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agui_run, "QUIET_SECONDS", 0.1)
    chat.sessions.turn_script = lambda session, turn: [
        StepStarted(turn=turn, step=1),
        MessageDelta(message_id="m", text="May I?"),
        chat.sessions.require_approval(
            session, turn, "call-1", name="ask_user", type="question", question="Which?", actions=("answer", "reject")
        ),
        SessionStateChanged(state=SessionState.WAITING),
    ]
    (interrupt,) = pending_interrupts(run_agent(client, "within", "Go."))
    assert (interrupt.reason, interrupt.message) == ("question", "Which?")
    chat.sessions.turn_script = finish_turn
    run_agent(client, "within", resume=[ResumeEntry(interrupt_id=interrupt.id, status="resolved", payload="That one.")])


def test_client_tool_call_within_a_turn_ends_the_run(
    chat: ScriptedChatServer, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agui_run, "QUIET_SECONDS", 0.1)
    chat.sessions.turn_script = lambda session, turn: [
        StepStarted(turn=turn, step=1),
        chat.sessions.require_approval(
            session, turn, "call-1", name="paint", type="question", actions=("answer", "reject")
        ),
        SessionStateChanged(state=SessionState.WAITING),
    ]
    end = run_agent(client, "within, a tool", "Go.")[-1]
    assert isinstance(end, RunFinishedEvent) and isinstance(end.outcome, RunFinishedSuccessOutcome)


def test_failed_and_cancelled_turns_end_the_run(chat: ScriptedChatServer, client: httpx.Client) -> None:
    chat.sessions.turn_script = lambda session, turn: [
        MessageDelta(message_id="m", text="I"),
        TurnError(code="MODEL_ERROR", message="the model broke off", fatal=True),
        TurnEnded(turn=turn, state="failed"),
    ]
    end = run_agent(client, "fails", "Go.")[-1]
    assert isinstance(end, RunErrorEvent) and (end.code, end.message) == ("MODEL_ERROR", "the model broke off")
    chat.sessions.turn_script = lambda session, turn: [TurnEnded(turn=turn, state="cancelled")]
    last = run_agent(client, "is cancelled", "Go.")[-1]
    assert isinstance(last, RunFinishedEvent) and isinstance(last.outcome, RunFinishedCancelledOutcome)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"threadId": ""}, "threadId"),
        ({"messages": []}, "last one must be a user's"),
        ({"messages": [{"id": "1", "role": "assistant", "content": "a"}]}, "last one must be a user's"),
        ({"messages": [{"id": "1", "role": "user", "content": {"a": 1}}]}, "content"),
        ({"messages": [{"id": "1", "role": "user", "content": [5]}]}, "part"),
        (
            {
                "messages": [
                    {
                        "id": "1",
                        "role": "user",
                        "content": [{"type": "image", "source": {"type": "url", "value": "http://127.0.0.1/"}}],
                    }
                ]
            },
            "not fetched",
        ),
        ({"resume": [{"interruptId": "apr-none", "status": "resolved"}]}, "no pending interrupt"),
        ({"forwardedProps": {"resume": "yes"}}, "forwardedProps.resume"),
        ({"threadId": "new one", "forwardedProps": {"session": {"agent": "nobody"}}}, "there is no agent"),
        ({"threadId": "newer one", "forwardedProps": {"session": {"modell": "x"}}}, "modell"),
    ],
)
def test_invalid_runs(client: httpx.Client, change: dict[str, Any], word: str) -> None:
    body = {"threadId": "bad", "runId": "r", "messages": [{"id": "1", "role": "user", "content": "Hi."}], **change}
    before = client.get("/v1/sessions", params={"pageSize": 200}).json()["items"]
    response = client.post("/v1/agui", json=body)
    assert response.status_code == 400 and word in response.json()["message"], response.text
    if "resume" not in change:
        assert client.get("/v1/sessions", params={"pageSize": 200}).json()["items"] == before


def test_disconnecting_client_cancels_its_turn_but_viewer_does_not(
    chat: ScriptedChatServer, client: httpx.Client
) -> None:
    chat.sessions.turn_script = lambda session, turn: [MessageStarted(message_id="msg-a", turn=turn, step=1)]
    session = client.post("/v1/sessions", json={}).json()["id"]

    def state() -> str:
        return str(client.get(f"/v1/sessions/{session}").json()["state"])

    body = RunAgentInput(
        thread_id=session,
        run_id="run-1",
        messages=[UserMessage(id="1", content="Go on for ever.")],
        tools=[],
        context=[],
        state={},
        forwarded_props=None,
    ).model_dump(mode="json", by_alias=True)
    with client.stream("POST", "/v1/agui", json=body) as answer:
        lines = data_lines(answer)
        next(lines)
        with client.stream("GET", f"/v1/sessions/{session}/events") as viewer:
            next(data_lines(viewer))
        assert state() == "running"
    eventually(lambda: state() == "idle")
    events = client.get(f"/v1/sessions/{session}/events", headers={"Accept": "application/json"}).json()["items"]
    assert [each["data"]["state"] for each in events if each["type"] == "turn.ended"] == ["cancelled"]
