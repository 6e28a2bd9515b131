"""What a rehearsal is made of: its script, its tools and its records."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias

from paddock.agents.engines.base import CallPiece, Piece, Reply, TextPiece, ThoughtPiece, ToolSpec, Verdict
from paddock.model.session_events import SessionEvent
from paddock.model.sessions import (
    Approval,
    ApprovalState,
    Call,
    CallResult,
    CallState,
    Choice,
    Content,
    Message,
    Session,
    TextContent,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STATES: Mapping[str, ApprovalState] = {
    "approve": ApprovalState.APPROVED,
    "edit": ApprovalState.EDITED,
    "reject": ApprovalState.REJECTED,
    "answer": ApprovalState.ANSWERED,
}

Function: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[str | CallResult]]
Written: TypeAlias = str | Sequence[Content]


class Killed(BaseException):
    """The server has died here, as by `kill -9`. Nothing may be done after it."""


@dataclass(frozen=True)
class Wanted:
    """A call in a scripted answer. Arguments that are a string are malformed."""

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """What the scripted model says."""

    text: str = ""
    thought: str = ""
    calls: Sequence[Wanted] = ()
    hangs: bool = False
    """Whether it never comes to its end: for what is cancelled within an answer."""


@dataclass(frozen=True)
class Question:
    """What the model was asked."""

    turn: int
    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[str]
    by: str | None
    digest: str

    @property
    def text(self) -> str:
        """The words of its last message."""
        return words(self.messages[-1])


Scripted: TypeAlias = str | Answer | Exception
Script: TypeAlias = Sequence[Scripted] | Callable[[Question], Scripted]


@dataclass(frozen=True)
class Tool:
    spec: ToolSpec
    function: Function


def tool(
    name: str,
    function: Function,
    *,
    required: Sequence[str] = (),
    effect: Literal["none", "command", "write", "other"] = "other",
) -> Tool:
    """A tool with a plain schema."""
    schema = {
        "type": "object",
        "properties": {each: {} for each in required},
        "required": list(required),
        "additionalProperties": True,
    }
    spec = ToolSpec(name=name, description=f"{name}.", input_schema=schema, tool=name, effect=effect)
    return Tool(spec, function)


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


def words(message: Mapping[str, Any]) -> str:
    """The text of a message in OpenAI's form."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content if part.get("type") == "text")


@dataclass
class Entry:
    """A call in the ledger."""

    call: Call
    turn: int
    state: CallState
    result: CallResult | None = None
    verdict: Verdict | None = None


@dataclass
class Records:
    """What survives the death of the server."""

    messages: list[Message] = field(default_factory=list)
    ledger: dict[str, Entry] = field(default_factory=dict)
    approvals: dict[str, Approval] = field(default_factory=dict)
    """By the id of their call."""
    journal: dict[tuple[int, str], Reply] = field(default_factory=dict)
    state: bytes | None = None
    told: list[SessionEvent] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    """Those that the model was asked, not those answered from the journal."""
    answers: int = 0
    """How much of the script is used up."""
    runs: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    """Tools as they were begun, with their arguments."""
    made: Counter[str] = field(default_factory=Counter)

    def new_id(self, prefix: str) -> str:
        self.made[prefix] += 1
        return f"{prefix}_{self.made[prefix]}"


def as_content(written: Written) -> tuple[Content, ...]:
    return (TextContent(text=written),) if isinstance(written, str) else tuple(written)


def as_calls(records: Records, wanted: Sequence[Wanted]) -> tuple[Call, ...]:
    """Calls with ids of their own, as a server makes them of what a model writes."""

    def one(each: Wanted) -> Call:
        if isinstance(each.arguments, str):
            return Call(id=records.new_id("call"), name=each.name, malformed=each.arguments)
        return Call(id=records.new_id("call"), name=each.name, arguments=each.arguments)

    return tuple(one(each) for each in wanted)


def as_pieces(message: Message) -> list[Piece]:
    """A message that was kept, as it is told again."""
    thought: list[Piece] = [ThoughtPiece(message.thought)] if message.thought else []
    text: list[Piece] = [TextPiece(message.text)] if message.text else []
    return [*thought, *text, *(CallPiece(call) for call in message.calls)]


def matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def as_result(approval: Approval) -> CallResult:
    """Of a call that is not run, because of what a person decided."""
    if approval.state is ApprovalState.ANSWERED:
        return CallResult(content=as_content(approval.reason or ""))
    return CallResult(content=as_content(f"Not run, it was {approval.state}: {approval.reason}"), refused=True)


def as_verdict(approval: Approval, choices: Sequence[Choice]) -> Verdict:
    allowed = approval.state in (ApprovalState.APPROVED, ApprovalState.EDITED, ApprovalState.ANSWERED)
    chosen = approval.reason if any(choice.id == approval.reason for choice in choices) else None
    return Verdict(allowed, arguments=approval.edited, reason=approval.reason, choice=chosen)
