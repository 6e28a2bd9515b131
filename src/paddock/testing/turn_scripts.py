"""Scripts, tools and records of in-memory turns."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias

from paddock.agents.engines.base import (
    CallPiece,
    CallVerdict,
    ModelReply,
    ReplyPiece,
    TextPiece,
    ThoughtPiece,
    ToolSpec,
)
from paddock.model.session_events import SessionEvent
from paddock.model.sessions import (
    Approval,
    ApprovalState,
    CallResult,
    CallState,
    FileContent,
    MessageContent,
    QuestionChoice,
    Session,
    SessionMessage,
    TextContent,
    ToolCall,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
APPROVAL_STATES: Mapping[str, ApprovalState] = {
    "approve": ApprovalState.APPROVED,
    "edit": ApprovalState.EDITED,
    "reject": ApprovalState.REJECTED,
    "answer": ApprovalState.ANSWERED,
}

ToolFunction: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[str | CallResult]]
ScriptedContent: TypeAlias = str | Sequence[TextContent | FileContent]


class ServerKilled(BaseException):
    """The simulated server was killed; nothing may happen after it."""


@dataclass(frozen=True)
class ScriptedCall:
    """A call in a scripted reply. String arguments make it malformed."""

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)


@dataclass(frozen=True)
class ScriptedReply:
    """A reply of the scripted model."""

    text: str = ""
    thought: str = ""
    calls: Sequence[ScriptedCall] = ()
    never_ends: bool = False
    """Whether the reply never ends, to test cancellation."""


@dataclass(frozen=True)
class ModelQuestion:
    """A question to the scripted model."""

    turn: int
    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[str]
    by: str | None
    digest: str

    @property
    def text(self) -> str:
        """Return the text of the last message."""
        return message_text(self.messages[-1])


ScriptEntry: TypeAlias = str | ScriptedReply | Exception
Script: TypeAlias = Sequence[ScriptEntry] | Callable[[ModelQuestion], ScriptEntry]


@dataclass(frozen=True)
class ScriptedTool:
    spec: ToolSpec
    function: ToolFunction


def make_tool(
    name: str,
    function: ToolFunction,
    *,
    required: Sequence[str] = (),
    effect: Literal["none", "command", "write", "other"] = "other",
) -> ScriptedTool:
    """Create a tool with a simple schema."""
    schema = {
        "type": "object",
        "properties": {each: {} for each in required},
        "required": list(required),
        "additionalProperties": True,
    }
    spec = ToolSpec(name=name, description=f"{name}.", input_schema=schema, tool=name, effect=effect)
    return ScriptedTool(spec, function)


def new_session() -> Session:
    return Session(
        id=f"ses_{secrets.token_hex(8)}",
        tenant="default",
        agent="rehearsal",
        engine="rehearsal",
        model="script",
        created_at=NOW,
        changed_at=NOW,
    )


def message_text(message: Mapping[str, Any]) -> str:
    """Return the text of a chat message in OpenAI's format."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content if part.get("type") == "text")


@dataclass
class RecordedCall:
    """A recorded call."""

    call: ToolCall
    turn: int
    state: CallState
    result: CallResult | None = None
    verdict: CallVerdict | None = None


@dataclass
class TurnRecords:
    """Records that survive a crash of the server."""

    messages: list[SessionMessage] = field(default_factory=list)
    ledger: dict[str, RecordedCall] = field(default_factory=dict)
    approvals: dict[str, Approval] = field(default_factory=dict)
    """Approvals by the id of their call."""
    journal: dict[tuple[int, str], ModelReply] = field(default_factory=dict)
    state: bytes | None = None
    events: list[SessionEvent] = field(default_factory=list)
    questions: list[ModelQuestion] = field(default_factory=list)
    """Questions that reached the model, without those answered from the journal."""
    replies_used: int = 0
    """Number of script entries used."""
    tool_runs: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    """Tool runs as they were started, with their arguments."""
    id_counts: Counter[str] = field(default_factory=Counter)

    def new_id(self, prefix: str) -> str:
        self.id_counts[prefix] += 1
        return f"{prefix}_{self.id_counts[prefix]}"


def to_content(content: ScriptedContent) -> tuple[MessageContent, ...]:
    return (TextContent(text=content),) if isinstance(content, str) else tuple(content)


def to_calls(records: TurnRecords, scripted_calls: Sequence[ScriptedCall]) -> tuple[ToolCall, ...]:
    """Convert scripted calls to calls with new ids."""

    def to_call(each: ScriptedCall) -> ToolCall:
        if isinstance(each.arguments, str):
            return ToolCall(id=records.new_id("call"), name=each.name, malformed=each.arguments)
        return ToolCall(id=records.new_id("call"), name=each.name, arguments=each.arguments)

    return tuple(to_call(each) for each in scripted_calls)


def reply_pieces_from_message(message: SessionMessage) -> list[ReplyPiece]:
    """Return the reply pieces of a recorded message."""
    thought: list[ReplyPiece] = [ThoughtPiece(message.thought)] if message.thought else []
    text: list[ReplyPiece] = [TextPiece(message.text)] if message.text else []
    return [*thought, *text, *(CallPiece(call) for call in message.calls)]


def matches_any(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def to_unrun_result(approval: Approval) -> CallResult:
    """Return the result of a call that was not run because of a decision."""
    if approval.state is ApprovalState.ANSWERED:
        return CallResult(content=to_content(approval.reason or ""))
    return CallResult(content=to_content(f"Not run, it was {approval.state}: {approval.reason}"), refused=True)


def to_verdict(approval: Approval, choices: Sequence[QuestionChoice]) -> CallVerdict:
    allowed = approval.state in (ApprovalState.APPROVED, ApprovalState.EDITED, ApprovalState.ANSWERED)
    chosen_id = approval.reason if any(choice.id == approval.reason for choice in choices) else None
    return CallVerdict(allowed, arguments=approval.edited, reason=approval.reason, choice=chosen_id)
