"""A session on a real database, and calls of an agent in it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import insert

from paddock.agents.approvals.tool_call_service import ToolCallService
from paddock.agents.engines.base import ToolSpec
from paddock.config.schema import Config
from paddock.events.event_log import EventLog
from paddock.model.events import EventType
from paddock.model.session_events import SessionEvent, TurnStarted
from paddock.model.sessions import (
    Approval,
    ApprovalDecision,
    CallResult,
    Policy,
    Session,
    SessionMessage,
    SessionState,
    TextContent,
    ToolCall,
)
from paddock.store.chat_sessions.session_store import SessionStore, session_model_to_row
from paddock.store.database import Store
from paddock.store.tables import sessions

START = datetime(2026, 1, 2, tzinfo=UTC)
TEXT = {"type": "string"}


def make_spec(name: str, kind: str | None = "linux", effect: Any = "command", **properties: Any) -> ToolSpec:
    schema = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    qualified_name = name if kind is None else f"{kind}_{name}"
    return ToolSpec(name=qualified_name, description="", input_schema=schema, kind=kind, tool=name, effect=effect)


SPECS = {
    spec.name: spec
    for spec in (
        make_spec("run_shell_command", command=TEXT),
        make_spec("write_file", effect="write", path=TEXT, content=TEXT),
        make_spec("read_file", effect="none", path=TEXT),
        make_spec("click", effect="other", x={"type": "integer"}),
        make_spec("update_plan", None, "write", title=TEXT),
        ToolSpec(
            name="ask_user",
            description="",
            input_schema={"type": "object", "properties": {"question": TEXT, "choices": {"type": "array"}}},
            tool="ask_user",
            effect="none",
        ),
    )
}


def make_session(session_id: str = "session-1", **fields: Any) -> Session:
    defaults = {"tenant": "t", "agent": "langgraph", "engine": "langgraph", "model": "m", "turn": 1}
    defaults |= {"state": SessionState.RUNNING, "created_at": START, "changed_at": START, "id": session_id}
    return Session.model_validate(defaults | fields)


def shell_call(command: str = "make", call_id: str = "c1") -> ToolCall:
    return ToolCall(id=call_id, name="linux_run_shell_command", arguments={"command": command})


def make_decision(approval: Approval, action: Any = "approve", **fields: Any) -> ApprovalDecision:
    return ApprovalDecision(approval=approval.id, digest=approval.digest, action=action, **fields)


def text_tool_result(text: str) -> CallResult:
    return CallResult(content=(TextContent(text=text),))


async def run_forever(call: ToolCall) -> CallResult:
    """Run a call until it is cancelled."""
    await asyncio.Event().wait()
    raise AssertionError


class RecordingTools:
    """Runs calls and records them."""

    def __init__(self, behavior: Callable[[ToolCall], Awaitable[CallResult]] | None = None) -> None:
        self.calls_run: list[ToolCall] = []
        self.behavior = behavior

    async def __call__(self, session: Session, turn: int, call: ToolCall, spec: ToolSpec) -> CallResult:
        self.calls_run.append(call)
        return await self.behavior(call) if self.behavior else text_tool_result(f"did {call.id}")


class CallHarness:
    """The tool call service on a real store; `restart` returns the harness of a restarted server."""

    def __init__(self, store: Store, events: EventLog, tools: RecordingTools, chat: Mapping[str, Any]) -> None:
        self.store = store
        self.events = events
        self.tools = tools
        self.chat = dict(chat)
        self.session_store = SessionStore(store)
        self.session = make_session()
        self.calls = ToolCallService(store, events, Config.model_validate({"chat": self.chat}), tools)
        self.decided_sessions: list[str] = []
        self.calls.on_decided = self.decided_sessions.append

    @classmethod
    async def open(
        cls, store: Store, tools: RecordingTools | None = None, policy: Policy | None = None, **chat: Any
    ) -> CallHarness:
        harness = cls(store, await EventLog.open(store), tools or RecordingTools(), chat)
        harness.session = make_session(policy=policy or Policy())
        await harness.insert_session(harness.session)
        await harness.emit(TurnStarted(turn=1, cause="message"))
        return harness

    async def restart(self, **chat: Any) -> CallHarness:
        return type(self)(self.store, await EventLog.open(self.store), self.tools, self.chat | chat)

    async def insert_session(self, session: Session) -> None:
        await self.store.write(lambda connection: connection.execute(insert(sessions), session_model_to_row(session)))

    async def store_calls(self, *calls: ToolCall) -> SessionMessage:
        message = SessionMessage(
            id=f"m-{calls[0].id}", session="session-1", turn=1, role="assistant", calls=calls, at=START
        )
        return await self.store.write(lambda connection: SessionStore.store_message(connection, message))

    async def emit(self, event: SessionEvent) -> None:
        await self.events.append("session/session-1", event.event, event.data(), tenant="t")

    async def run_call(self, call: ToolCall, *, wait: bool = True, turn: int = 1) -> CallResult:
        return await self.calls.run_call(self.session, turn, call, SPECS, wait=wait)

    async def decide(self, *decisions: ApprovalDecision, by: str = "ann") -> Sequence[Approval]:
        return await self.calls.decide_approvals("t", "session-1", decisions, by)

    async def pending(self) -> Sequence[Approval]:
        return await self.calls.list_pending_approvals("session-1")

    async def wait_for_approvals(self, count: int = 1) -> Sequence[Approval]:
        """Wait until so many approvals are pending."""
        async with asyncio.timeout(10):
            while len(approvals := await self.pending()) < count:
                await asyncio.sleep(0)
        return approvals

    async def only_pending(self) -> Approval:
        (approval,) = await self.pending()
        return approval

    async def load_session(self) -> Session:
        return await self.session_store.get("session-1")

    async def events_of(self, *kinds: EventType) -> list[Mapping[str, Any]]:
        events = await self.events.read("session/session-1", limit=10_000)
        return [event.data for event in events if event.type in kinds]

    async def event_types(self) -> list[EventType]:
        """Return the types of all events except the start of the turn."""
        events = await self.events.read("session/session-1", limit=10_000)
        return [event.type for event in events if event.type is not EventType.TURN_STARTED]
