"""A session on a real database, and calls of an agent in it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import insert

from paddock.agents.approvals.tool_calls import ToolCalls
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
from paddock.store.chat_sessions.session_store import SessionStore, session_row
from paddock.store.database import Store
from paddock.store.tables import sessions

START = datetime(2026, 1, 2, tzinfo=UTC)
TEXT = {"type": "string"}


def make_spec(name: str, kind: str | None = "linux", effect: Any = "command", **properties: Any) -> ToolSpec:
    schema = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    full = name if kind is None else f"{kind}_{name}"
    return ToolSpec(name=full, description="", input_schema=schema, kind=kind, tool=name, effect=effect)


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
    given = {"tenant": "t", "agent": "langgraph", "engine": "langgraph", "model": "m", "turn": 1}
    given |= {"state": SessionState.RUNNING, "created_at": START, "changed_at": START, "id": session_id}
    return Session.model_validate(given | fields)


def shell_call(command: str = "make", call_id: str = "c1") -> ToolCall:
    return ToolCall(id=call_id, name="linux_run_shell_command", arguments={"command": command})


def make_decision(approval: Approval, action: Any = "approve", **fields: Any) -> ApprovalDecision:
    return ApprovalDecision(approval=approval.id, digest=approval.digest, action=action, **fields)


def text_result(text: str) -> CallResult:
    return CallResult(content=(TextContent(text=text),))


async def run_forever(call: ToolCall) -> CallResult:
    """A call that goes on until it is broken off."""
    await asyncio.Event().wait()
    raise AssertionError


class RecordingTools:
    """Runs calls, and counts what it did."""

    def __init__(self, then: Callable[[ToolCall], Awaitable[CallResult]] | None = None) -> None:
        self.did: list[ToolCall] = []
        self.then = then

    async def __call__(self, session: Session, turn: int, call: ToolCall, spec: ToolSpec) -> CallResult:
        self.did.append(call)
        return await self.then(call) if self.then else text_result(f"did {call.id}")


class CallHarness:
    """Calls over a store, as a server has them. `again` is what a server started anew has."""

    def __init__(self, store: Store, events: EventLog, tools: RecordingTools, chat: Mapping[str, Any]) -> None:
        self.store = store
        self.events = events
        self.tools = tools
        self.chat = dict(chat)
        self.book = SessionStore(store)
        self.session = make_session()
        self.calls = ToolCalls(store, events, Config.model_validate({"chat": self.chat}), tools)
        self.heard: list[str] = []
        self.calls.on_decided = self.heard.append

    @classmethod
    async def open(
        cls, store: Store, tools: RecordingTools | None = None, policy: Policy | None = None, **chat: Any
    ) -> CallHarness:
        harness = cls(store, await EventLog.open(store), tools or RecordingTools(), chat)
        harness.session = make_session(policy=policy or Policy())
        await harness.keep(harness.session)
        await harness.tell(TurnStarted(turn=1, cause="message"))
        return harness

    async def again(self, **chat: Any) -> CallHarness:
        return type(self)(self.store, await EventLog.open(self.store), self.tools, self.chat | chat)

    async def keep(self, session: Session) -> None:
        await self.store.write(lambda connection: connection.execute(insert(sessions), session_row(session)))

    async def say(self, *calls: ToolCall) -> SessionMessage:
        message = SessionMessage(
            id=f"m-{calls[0].id}", session="session-1", turn=1, role="assistant", calls=calls, at=START
        )
        return await self.store.write(lambda connection: SessionStore.keep(connection, message))

    async def tell(self, event: SessionEvent) -> None:
        await self.events.append("session/session-1", event.event, event.data(), tenant="t")

    async def perform(self, call: ToolCall, *, wait: bool = True, turn: int = 1) -> CallResult:
        return await self.calls.run_call(self.session, turn, call, SPECS, wait=wait)

    async def decide(self, *decisions: ApprovalDecision, by: str = "ann") -> Sequence[Approval]:
        return await self.calls.decide("t", "session-1", decisions, by)

    async def pending(self) -> Sequence[Approval]:
        return await self.calls.list_pending("session-1")

    async def asked(self, count: int = 1) -> Sequence[Approval]:
        """Wait until so many approvals are pending."""
        async with asyncio.timeout(10):
            while len(found := await self.pending()) < count:
                await asyncio.sleep(0)
        return found

    async def only(self) -> Approval:
        (approval,) = await self.pending()
        return approval

    async def now(self) -> Session:
        return await self.book.get("session-1")

    async def told(self, *kinds: EventType) -> list[Mapping[str, Any]]:
        found = await self.events.read("session/session-1", limit=10_000)
        return [event.data for event in found if event.type in kinds]

    async def order(self) -> list[EventType]:
        """What was told, without the turn's own beginning."""
        found = await self.events.read("session/session-1", limit=10_000)
        return [event.type for event in found if event.type is not EventType.TURN_STARTED]
