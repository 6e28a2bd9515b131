"""What happens in a chat session: the data of each event, by its type.

They are told in the stream `session/ID`. The JSON Schema and the TypeScript types that are published come from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from paddock.model.events import EventType
from paddock.model.owners import Visibility
from paddock.model.sandbox import Frozen
from paddock.model.sessions import (
    Approval,
    ApprovalState,
    Call,
    CallResult,
    Message,
    PlanStep,
    Policy,
    SessionState,
    SessionUsage,
)


class SessionEvent(Frozen):
    """One thing that happened in a session."""

    event: ClassVar[EventType]

    def data(self) -> dict[str, Any]:
        """As the log keeps it."""
        return self.model_dump(mode="json", exclude_none=True)


class SessionCreated(SessionEvent):
    event = EventType.SESSION_CREATED
    title: str
    agent: str
    model: str
    kinds: tuple[str, ...]


class SessionChanged(SessionEvent):
    """Somebody has changed its settings; what is absent is as it was."""

    event = EventType.SESSION_CHANGED
    title: str | None = None
    model: str | None = None
    kinds: tuple[str, ...] | None = None
    policy: Policy | None = None
    instructions: str | None = None
    budget: int | None = None
    visibility: Visibility | None = None
    by: str | None = None


class SessionStateChanged(SessionEvent):
    event = EventType.SESSION_STATE
    state: SessionState
    reason: str | None = None


class SessionDeleted(SessionEvent):
    event = EventType.SESSION_DELETED


class Building(Frozen):
    """How far the image of a sandbox is that has to be built first."""

    image: str
    step: str
    fraction: float | None = None
    """Of the whole build, 0 to 1, where it is known."""


class SessionSandbox(SessionEvent):
    """A sandbox of the session was made, found broken or released."""

    event = EventType.SESSION_SANDBOX
    kind: str
    sandbox_id: str
    state: Literal["starting", "ready", "broken", "released"]
    reason: str | None = None
    building: Building | None = None
    """What one that is starting waits for; told again while that goes on."""


class SessionDesktop(SessionEvent):
    event = EventType.SESSION_DESKTOP
    kind: str
    sandbox_id: str
    state: Literal["started", "stopped", "taken", "handed_back"]
    by: str | None = None


class SessionTerminal(SessionEvent):
    event = EventType.SESSION_TERMINAL
    kind: str
    sandbox_id: str
    name: str
    state: Literal["ready", "closed"]


class SessionScreen(SessionEvent):
    """The screen of one of its sandboxes has changed, because of a tool or by itself."""

    event = EventType.SESSION_SCREEN
    kind: str
    sandbox_id: str
    cause: str
    etag: str | None = None


class SessionFile(SessionEvent):
    """A file was written in one of its sandboxes, came from another, or was kept by the session."""

    event = EventType.SESSION_FILE
    kind: str | None = None
    sandbox_id: str | None = None
    path: str
    source: str | None = None
    """Where it came from, `linux:/workspace/a.txt`, if it was moved."""
    size: int | None = None


class SessionCompacted(SessionEvent):
    """Earlier messages were summed up, because the conversation got too long for the model."""

    event = EventType.SESSION_COMPACTED
    messages: int
    before: int
    """Estimated tokens."""
    after: int


class TurnStarted(SessionEvent):
    event = EventType.TURN_STARTED
    turn: int
    cause: Literal["message", "decisions", "continue", "restart"]
    """The same turn starts again after decisions, and after a restart of the server."""


class TurnEnded(SessionEvent):
    event = EventType.TURN_ENDED
    turn: int
    state: Literal["done", "waiting", "cancelled", "failed"]
    reason: str | None = None


class StepStarted(SessionEvent):
    """The model is asked; a step is one question and the calls of its answer."""

    event = EventType.STEP_STARTED
    turn: int
    step: int
    by: str | None = None
    """The helper that works, if it is not the agent itself."""


class StepEnded(SessionEvent):
    event = EventType.STEP_ENDED
    turn: int
    step: int
    calls: int


class PlanChanged(SessionEvent):
    event = EventType.PLAN_CHANGED
    steps: tuple[PlanStep, ...]


class MessageReceived(SessionEvent):
    """Somebody, or the server, wrote to the agent."""

    event = EventType.MESSAGE_RECEIVED
    message: Message
    waits: bool = False
    """Whether the agent is at work, and reads it before its next question to the model."""


class MessageStarted(SessionEvent):
    event = EventType.MESSAGE_STARTED
    message_id: str
    turn: int
    step: int
    by: str | None = None


class MessageDelta(SessionEvent):
    event = EventType.MESSAGE_DELTA
    message_id: str
    text: str


class MessageEnded(SessionEvent):
    """The answer is whole, and kept; or it was cut, and says why."""

    event = EventType.MESSAGE_ENDED
    message_id: str
    text: str
    calls: tuple[Call, ...] = ()
    cut: str | None = None


class ThoughtStarted(SessionEvent):
    event = EventType.THOUGHT_STARTED
    message_id: str


class ThoughtDelta(SessionEvent):
    event = EventType.THOUGHT_DELTA
    message_id: str
    text: str


class ThoughtEnded(SessionEvent):
    event = EventType.THOUGHT_ENDED
    message_id: str


class CallStarted(SessionEvent):
    """The model begins to write a call."""

    event = EventType.CALL_STARTED
    message_id: str
    call_id: str
    name: str


class CallDelta(SessionEvent):
    event = EventType.CALL_DELTA
    call_id: str
    text: str
    """The next piece of its arguments, as JSON."""


class CallReady(SessionEvent):
    """The call is whole, and in the ledger."""

    event = EventType.CALL_READY
    call: Call
    kind: str | None = None
    tool: str


class CallRunning(SessionEvent):
    event = EventType.CALL_RUNNING
    call_id: str
    sandbox_id: str | None = None
    arguments: Mapping[str, Any] | None = None
    """Where a person has edited them: as they are run."""


class CallOutput(SessionEvent):
    """What a tool says while it runs, as far as it is told; what comes of it is in the call's result."""

    event = EventType.CALL_OUTPUT
    call_id: str
    text: str


class CallResulted(SessionEvent):
    event = EventType.CALL_RESULT
    call_id: str
    result: CallResult


class ApprovalRequired(SessionEvent):
    event = EventType.APPROVAL_REQUIRED
    approval: Approval


class ApprovalDecided(SessionEvent):
    event = EventType.APPROVAL_DECIDED
    approval_id: str
    call_id: str
    state: ApprovalState
    by: str | None = None
    reason: str | None = None
    arguments: Mapping[str, Any] | None = None
    always: Literal["call", "tool"] | None = None


class ApprovalExpired(SessionEvent):
    event = EventType.APPROVAL_EXPIRED
    approval_id: str
    call_id: str


class UsageChanged(SessionEvent):
    event = EventType.USAGE_CHANGED
    usage: SessionUsage


class TurnError(SessionEvent):
    """Something went wrong; the turn goes on if it can."""

    event = EventType.TURN_ERROR
    code: str
    message: str
    fatal: bool = False


EVENTS: Mapping[EventType, type[SessionEvent]] = {kind.event: kind for kind in SessionEvent.__subclasses__()}
