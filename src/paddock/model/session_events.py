"""Data of chat session events, by event type.

Events are published in the stream `session/ID`. The published JSON Schema and TypeScript types are generated from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from paddock.model.events import EventType
from paddock.model.owners import Visibility
from paddock.model.sandbox import FrozenModel
from paddock.model.sessions import (
    Approval,
    ApprovalState,
    CallResult,
    PlanStep,
    Policy,
    SessionMessage,
    SessionState,
    SessionUsage,
    ToolCall,
)


class SessionEvent(FrozenModel):
    """Base of the session events."""

    event: ClassVar[EventType]

    def data(self) -> dict[str, Any]:
        """Return the data as the event log stores it."""
        return self.model_dump(mode="json", exclude_none=True)


class SessionCreated(SessionEvent):
    event = EventType.SESSION_CREATED
    title: str
    agent: str
    model: str
    kinds: tuple[str, ...]


class SessionChanged(SessionEvent):
    """The settings changed; absent fields are unchanged."""

    event = EventType.SESSION_CHANGED
    title: str | None = None
    model: str | None = None
    kinds: tuple[str, ...] | None = None
    network: tuple[str, ...] | None = None
    default_network: Literal[True] | None = None
    """The session has no network policy of its own any more."""
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


class ImageBuildProgress(FrozenModel):
    """Progress of an image build that a sandbox waits for."""

    image: str
    step: str
    fraction: float | None = None
    """Share of the whole build, 0 to 1, if known."""
    step_number: int | None = None
    """Number of the step from 1, if known."""
    step_count: int | None = None
    """Number of steps, if known."""


class SessionSandbox(SessionEvent):
    """A sandbox of the session was created, found broken or released."""

    event = EventType.SESSION_SANDBOX
    kind: str
    sandbox_id: str
    state: Literal["starting", "ready", "broken", "released"]
    reason: str | None = None
    building: ImageBuildProgress | None = None
    """Image build that a starting sandbox waits for; published repeatedly."""


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
    """The screen of a sandbox changed, because of a tool or by itself."""

    event = EventType.SESSION_SCREEN
    kind: str
    sandbox_id: str
    cause: str
    etag: str | None = None


class SessionFile(SessionEvent):
    """A file was written in a sandbox, moved from another one, or stored with the session."""

    event = EventType.SESSION_FILE
    kind: str | None = None
    sandbox_id: str | None = None
    path: str
    source: str | None = None
    """Origin of a moved file, such as `linux:/workspace/a.txt`."""
    size: int | None = None


class SessionCompacted(SessionEvent):
    """Earlier messages were summarised, because the conversation became too long for the model."""

    event = EventType.SESSION_COMPACTED
    messages: int
    before: int
    """Estimated tokens."""
    after: int


class TurnStarted(SessionEvent):
    event = EventType.TURN_STARTED
    turn: int
    cause: Literal["message", "decisions", "continue", "restart"]
    """A turn starts again after decisions and after a server restart."""


class TurnEnded(SessionEvent):
    event = EventType.TURN_ENDED
    turn: int
    state: Literal["done", "waiting", "cancelled", "failed"]
    reason: str | None = None


class StepStarted(SessionEvent):
    """A step: one model request and the calls of its answer."""

    event = EventType.STEP_STARTED
    turn: int
    step: int
    by: str | None = None
    """Name of the sub-agent, if any."""


class StepEnded(SessionEvent):
    event = EventType.STEP_ENDED
    turn: int
    step: int
    calls: int


class PlanChanged(SessionEvent):
    event = EventType.PLAN_CHANGED
    steps: tuple[PlanStep, ...]


class MessageReceived(SessionEvent):
    """A person or the server wrote to the agent."""

    event = EventType.MESSAGE_RECEIVED
    message: SessionMessage
    waits: bool = False
    """Whether the agent is working and reads the message before its next model request."""


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
    """The message is complete, or incomplete with the reason in `cut`."""

    event = EventType.MESSAGE_ENDED
    message_id: str
    text: str
    calls: tuple[ToolCall, ...] = ()
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
    """The model starts to write a call."""

    event = EventType.CALL_STARTED
    message_id: str
    call_id: str
    name: str


class CallDelta(SessionEvent):
    event = EventType.CALL_DELTA
    call_id: str
    text: str
    """Next piece of the arguments, as JSON."""


class CallReady(SessionEvent):
    """The call is complete and stored in the ledger."""

    event = EventType.CALL_READY
    call: ToolCall
    kind: str | None = None
    tool: str


class CallRunning(SessionEvent):
    event = EventType.CALL_RUNNING
    call_id: str
    sandbox_id: str | None = None
    arguments: Mapping[str, Any] | None = None
    """Arguments as executed, if a person edited them."""


class CallOutput(SessionEvent):
    """Output of a running tool; the call's result has the final output."""

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
    """An error; the turn continues unless it is fatal."""

    event = EventType.TURN_ERROR
    code: str
    message: str
    fatal: bool = False


EVENTS: Mapping[EventType, type[SessionEvent]] = {kind.event: kind for kind in SessionEvent.__subclasses__()}
