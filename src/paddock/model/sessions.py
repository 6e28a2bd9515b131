"""Chat sessions: messages, tool calls, approvals and policies."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field

from paddock.model.keys import NAME_PATTERN
from paddock.model.owners import Ownership
from paddock.model.sandbox import FrozenModel

LARGEST_MESSAGE = 2**20
"""Maximum characters of text in a user message."""


class SessionState(StrEnum):
    """State of a session, as users read it."""

    IDLE = "idle"
    """No turn is running; the next message starts one."""
    RUNNING = "running"
    WAITING = "waiting"
    """Waiting for approvals."""
    PARKED = "parked"
    """Paused while a person controls one of its sandboxes."""


class PolicyAction(StrEnum):
    """Action of a policy rule."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class PolicyRule(FrozenModel):
    """A policy rule: the action for matching calls. Patterns support `*` and `?`."""

    tool: str = Field(default="*", min_length=1, max_length=200)
    """Tool name with its kind, `linux_run_shell_command`, or without, `run_shell_command`."""
    kind: str = Field(default="*", min_length=1, max_length=100)
    arguments: Mapping[str, Annotated[str, Field(max_length=1000)]] = Field(default={}, max_length=20)
    """Patterns of arguments, all of which must be present and match, such as `/etc/*` for `path`."""
    exact: bool = False
    """Whether calls with further arguments do not match."""
    action: PolicyAction


class Policy(FrozenModel):
    """Approval policy. The first matching rule decides; without one, the server's default applies: commands and file
    changes need approval, everything else is allowed."""

    rules: tuple[PolicyRule, ...] = Field(default=(), max_length=200)
    allow_all: tuple[str, ...] = Field(default=(), max_length=20)
    """Kinds in which calls need no approval; rules that deny still apply. `*` means all."""


class TextContent(FrozenModel):
    type: Literal["text"] = "text"
    text: str


class FileContent(FrozenModel):
    """An image or another file stored with the session."""

    type: Literal["image", "file"] = "file"
    file: str = Field(pattern=r"^[0-9a-f]{64}$")
    """SHA-256; the file is at `/v1/sessions/ID/files/SHA`."""
    name: str = Field(default="", max_length=255)
    mime: str = "application/octet-stream"
    size: int = Field(default=0, ge=0)


MessageContent = Annotated[TextContent | FileContent, Field(discriminator="type")]


class ToolCall(FrozenModel):
    """A tool call of the agent. Its id is unique in the session."""

    id: str
    name: str
    """Tool name with its kind: `linux_run_shell_command`."""
    arguments: Mapping[str, Any] = {}
    malformed: str | None = None
    """Raw arguments, if the model did not write a JSON object."""

    @property
    def digest(self) -> str:
        return tool_call_digest(self.name, self.arguments)


def tool_call_digest(name: str, arguments: Mapping[str, Any]) -> str:
    """Return the digest of tool name and arguments that an approval is bound to."""
    written = json.dumps([name, arguments], sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(written.encode(errors="surrogatepass")).hexdigest()


class ClientTool(FrozenModel):
    """A tool that the client of a session runs itself, such as an AG-UI front end."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    description: str = Field(default="", max_length=10_000)
    input_schema: Mapping[str, Any] = {"type": "object", "properties": {}}


class CallState(StrEnum):
    ASKED = "asked"
    """Waiting for approval."""
    RUNNING = "running"
    DONE = "done"
    """The result is stored; failed and refused calls have one too."""


class CallResult(FrozenModel):
    """Result of a call, as shown to the model and to people."""

    content: tuple[MessageContent, ...] = ()
    """Text is truncated to a budget; the full text is stored as a file."""
    failed: bool = False
    refused: bool = False
    """Whether the call did not run: rejected, denied, expired or malformed."""
    seconds: float = 0.0

    @property
    def text(self) -> str:
        return "\n".join(part.text for part in self.content if isinstance(part, TextContent))


class LedgerCall(FrozenModel):
    """A call in the session's ledger, which ensures that no call runs twice."""

    session: str
    call: ToolCall
    turn: int
    kind: str | None = None
    tool: str
    """Tool name without its kind."""
    sandbox_id: str | None = None
    state: CallState
    result: CallResult | None = None
    created_at: AwareDatetime
    changed_at: AwareDatetime


class ApprovalState(StrEnum):
    PENDING = "pending"
    APPROVED = "approved"
    EDITED = "edited"
    """Approved with edited arguments."""
    REJECTED = "rejected"
    ANSWERED = "answered"
    """A person provided the result of the call."""
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"
    """The turn was cancelled or the session deleted before a decision."""


class QuestionChoice(FrozenModel):
    """One choice of a question."""

    id: str
    label: str


CallEffect = Literal["reads", "writes", "deletes", "runs", "network", "unknown"]


class CallSummary(FrozenModel):
    """One-line summary of a call's effect, derived from tool and arguments, not from the agent's words."""

    text: str = ""
    """Summary in English; `code` and `params` carry the same for translation."""
    code: str
    params: Mapping[str, str | int] = {}
    effects: tuple[CallEffect, ...] = ()
    """Effects, most severe first."""
    writes: tuple[str, ...] = ()
    """Named paths that it writes; a program may write more."""
    deletes: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    unnamed: int = 0
    """Number of paths and hosts left out of these lists."""
    opaque: bool = False
    """Whether it may run more than the summary names, such as a command built by another one."""
    agent_words: str | None = None
    """Unverified description by the agent."""


class Approval(FrozenModel):
    """A pending decision: a call to approve or a question to answer."""

    id: str
    session: str
    tenant: str
    turn: int
    call_id: str
    type: Literal["call", "question"] = "call"
    name: str
    kind: str | None = None
    arguments: Mapping[str, Any] = {}
    digest: str
    summary: CallSummary | None = None
    """Summary of a call; `None` for questions."""
    question: str = ""
    choices: tuple[QuestionChoice, ...] = ()
    actions: tuple[Literal["approve", "edit", "reject", "answer"], ...] = ("approve", "edit", "reject", "answer")
    state: ApprovalState = ApprovalState.PENDING
    edited: Mapping[str, Any] | None = None
    reason: str | None = None
    """Reason of a rejection; the answer if `answered`."""
    always: Literal["call", "tool"] | None = None
    decided_by: str | None = None
    created_at: AwareDatetime
    expires_at: AwareDatetime | None = None
    decided_at: AwareDatetime | None = None


class ApprovalDecision(FrozenModel):
    """A person's decision about an approval."""

    approval: str
    digest: str
    """Digest of the approval as shown, so that unseen changes cannot be approved."""
    action: Literal["approve", "edit", "reject", "answer"]
    arguments: Mapping[str, Any] | None = None
    """With `edit`: the complete new arguments."""
    reason: str | None = Field(default=None, max_length=10_000)
    answer: str | None = Field(default=None, max_length=100_000)
    always: Literal["call", "tool"] | None = None
    """With `approve`: allow this exact call, or this tool, for the rest of the session."""


class PlanStep(FrozenModel):
    title: str = Field(max_length=500)
    state: Literal["pending", "running", "done", "dropped"] = "pending"


class SessionUsage(FrozenModel):
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    """US dollars, if the models' prices are known."""


class SessionMessage(FrozenModel):
    """One message of a session."""

    id: str
    session: str
    number: int = 0
    """Position in the session: 1, 2, 3 … Zero until it is stored."""
    turn: int
    role: Literal["user", "assistant", "tool", "note"]
    """A note is written by the server for the agent, such as a person's actions during a takeover."""
    content: tuple[MessageContent, ...] = ()
    thought: str = ""
    calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None
    """Call that a tool message answers."""
    cut: str | None = None
    """Reason of an incomplete message: cancelled, an error, a restart."""
    by: str | None = None
    """Author."""
    at: AwareDatetime

    @property
    def text(self) -> str:
        return "\n".join(part.text for part in self.content if isinstance(part, TextContent))


class SessionOrigin(FrozenModel):
    """Origin of a fork or an import."""

    session: str
    message: str | None = None


class Session(Ownership):
    """A chat with an agent, its sandboxes and its files."""

    id: str
    tenant: str
    title: str = Field(default="", max_length=200)
    agent: str = Field(pattern=NAME_PATTERN)
    """Agent: an engine with Paddock's tools, such as `langgraph`, or an agent CLI, such as `claude-code`."""
    engine: str
    model: str = Field(min_length=1, max_length=200)
    instructions: str = Field(default="", max_length=100_000)
    kinds: tuple[str, ...] = Field(default=(), max_length=20)
    """Kinds of sandbox it can use."""
    network: tuple[str, ...] | None = None
    """Network policy of its sandboxes; `None` means that of each kind."""
    mcp: tuple[str, ...] | None = Field(default=None, max_length=100)
    """Names of its MCP servers; `None` means all that its owner may use."""
    policy: Policy = Policy()
    budget: int | None = Field(default=None, ge=1)
    """Token budget."""
    state: SessionState = SessionState.IDLE
    error: str | None = None
    """Error of the last turn."""
    turn: int = 0
    """Number of started turns."""
    plan: tuple[PlanStep, ...] = ()
    usage: SessionUsage = SessionUsage()
    sandboxes: Mapping[str, str] = {}
    """Sandbox ids by kind."""
    origin: SessionOrigin | None = None
    created_at: AwareDatetime
    changed_at: AwareDatetime
