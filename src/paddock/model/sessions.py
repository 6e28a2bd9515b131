"""Chat sessions: what was said, what was called, and what a person decided."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field

from paddock.model.keys import NAME
from paddock.model.owners import Owned
from paddock.model.sandbox import Frozen

LARGEST_MESSAGE = 2**20
"""Characters of text in one message of a person."""


class SessionState(StrEnum):
    """In the words that users read."""

    IDLE = "idle"
    """Nothing is under way; the next message begins a turn."""
    RUNNING = "running"
    WAITING = "waiting"
    """For decisions of a person."""
    PARKED = "parked"
    """A person has the mouse and keyboard of one of its sandboxes."""


class Action(StrEnum):
    """What a policy says of a call."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class Rule(Frozen):
    """Says what becomes of calls that it fits. Patterns know `*` and `?`."""

    tool: str = Field(default="*", min_length=1, max_length=200)
    """The tool's name with its kind, `linux_run_shell_command`, or without, `run_shell_command`."""
    kind: str = Field(default="*", min_length=1, max_length=100)
    arguments: Mapping[str, Annotated[str, Field(max_length=1000)]] = Field(default={}, max_length=20)
    """Patterns that arguments must fit, each of which must be there; `/etc/*` for `path`, say."""
    exact: bool = False
    """Whether calls with other arguments besides do not fit."""
    action: Action


class Policy(Frozen):
    """What the agent may do by itself. The first rule that fits decides; after them, what the server has as its own:
    commands and changes of files are asked about, everything else is allowed."""

    rules: tuple[Rule, ...] = Field(default=(), max_length=200)
    allow_all: tuple[str, ...] = Field(default=(), max_length=20)
    """Kinds of sandbox in which nothing is asked, whatever the rules say, except what they deny; `*` is all."""


class TextContent(Frozen):
    type: Literal["text"] = "text"
    text: str


class FileContent(Frozen):
    """A picture or another file that the session keeps."""

    type: Literal["image", "file"] = "file"
    file: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Its SHA-256, by which it is found: `/v1/sessions/ID/files/SHA`."""
    name: str = Field(default="", max_length=255)
    mime: str = "application/octet-stream"
    size: int = Field(default=0, ge=0)


Content = Annotated[TextContent | FileContent, Field(discriminator="type")]


class Call(Frozen):
    """A tool that the agent wants to use. Its id is unique in its session."""

    id: str
    name: str
    """With its kind: `linux_run_shell_command`."""
    arguments: Mapping[str, Any] = {}
    malformed: str | None = None
    """What the model wrote instead of a JSON object, if it did."""

    @property
    def digest(self) -> str:
        return digest(self.name, self.arguments)


def digest(name: str, arguments: Mapping[str, Any]) -> str:
    """What a decision is bound to: the tool and its arguments, to the letter."""
    written = json.dumps([name, arguments], sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(written.encode(errors="surrogatepass")).hexdigest()


class ClientTool(Frozen):
    """A tool that a session's client runs itself, such as a front end that speaks AG-UI."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    description: str = Field(default="", max_length=10_000)
    input_schema: Mapping[str, Any] = {"type": "object", "properties": {}}


class CallState(StrEnum):
    ASKED = "asked"
    """A person has to decide first."""
    RUNNING = "running"
    DONE = "done"
    """Its result is kept; one that failed or was refused has one too."""


class CallResult(Frozen):
    """What came of a call, as the model and people are shown it."""

    content: tuple[Content, ...] = ()
    """Text cut to a budget; what was cut is kept whole as a file."""
    failed: bool = False
    refused: bool = False
    """Whether it was not run at all: rejected, denied, expired, malformed."""
    seconds: float = 0.0

    @property
    def text(self) -> str:
        return "\n".join(part.text for part in self.content if isinstance(part, TextContent))


class CallRecord(Frozen):
    """A call in the session's ledger: what was run once is never run again."""

    session: str
    call: Call
    turn: int
    kind: str | None = None
    tool: str
    """Its name without its kind."""
    sandbox_id: str | None = None
    state: CallState
    result: CallResult | None = None
    created_at: AwareDatetime
    changed_at: AwareDatetime


class ApprovalState(StrEnum):
    PENDING = "pending"
    APPROVED = "approved"
    EDITED = "edited"
    """Approved with other arguments."""
    REJECTED = "rejected"
    ANSWERED = "answered"
    """The person's words are the result of the call."""
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"
    """The turn was cancelled or the session deleted before anyone decided."""


class Choice(Frozen):
    """One answer that a question offers."""

    id: str
    label: str


CallEffect = Literal["reads", "writes", "deletes", "runs", "network", "unknown"]


class CallSummary(Frozen):
    """What a call would do, in one line: derived from its tool and arguments, not from what the agent says."""

    text: str = ""
    """The line in English. `code` and `params` say the same, to be translated."""
    code: str
    params: Mapping[str, str | int] = {}
    effects: tuple[CallEffect, ...] = ()
    """What it changes, the gravest first."""
    writes: tuple[str, ...] = ()
    """Paths that it names and writes. A program may write more."""
    deletes: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    unnamed: int = 0
    """Paths and hosts that are not in these lists, because they are many."""
    opaque: bool = False
    """Whether it may run more than the line names, such as what another command puts together."""
    agent_words: str | None = None
    """What the agent says of it. Nothing vouches for that."""


class Approval(Frozen):
    """Something that waits for a person: a call to be allowed, or a question to be answered."""

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
    """Of a call; not of a question."""
    question: str = ""
    choices: tuple[Choice, ...] = ()
    actions: tuple[Literal["approve", "edit", "reject", "answer"], ...] = ("approve", "edit", "reject", "answer")
    state: ApprovalState = ApprovalState.PENDING
    edited: Mapping[str, Any] | None = None
    reason: str | None = None
    """Why it was rejected; with `answered`, the answer."""
    always: Literal["call", "tool"] | None = None
    decided_by: str | None = None
    created_at: AwareDatetime
    expires_at: AwareDatetime | None = None
    decided_at: AwareDatetime | None = None


class Decision(Frozen):
    """What a person decides about an approval."""

    approval: str
    digest: str
    """That of the approval as it was shown, so that nobody approves what they have not seen."""
    action: Literal["approve", "edit", "reject", "answer"]
    arguments: Mapping[str, Any] | None = None
    """With `edit`: all arguments, as they shall be."""
    reason: str | None = Field(default=None, max_length=10_000)
    answer: str | None = Field(default=None, max_length=100_000)
    always: Literal["call", "tool"] | None = None
    """With `approve`: never ask again in this session about this very call, or about this tool."""


class PlanStep(Frozen):
    title: str = Field(max_length=500)
    state: Literal["pending", "running", "done", "dropped"] = "pending"


class SessionUsage(Frozen):
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    """In US dollars, where the models' prices are known."""


class Message(Frozen):
    """One message of a session's history."""

    id: str
    session: str
    number: int = 0
    """Its place in the session: 1, 2, 3 … Zero until it is kept."""
    turn: int
    role: Literal["user", "assistant", "tool", "note"]
    """A note is told to the agent by the server, such as what a person did who had the mouse."""
    content: tuple[Content, ...] = ()
    thought: str = ""
    calls: tuple[Call, ...] = ()
    call_id: str | None = None
    """Of a tool's message: which call it answers."""
    cut: str | None = None
    """Why it ends before its end: cancelled, an error, a restart."""
    by: str | None = None
    """Who wrote it."""
    at: AwareDatetime

    @property
    def text(self) -> str:
        return "\n".join(part.text for part in self.content if isinstance(part, TextContent))


class Origin(Frozen):
    """Where a fork or an import comes from."""

    session: str
    message: str | None = None


class Session(Owned):
    """A conversation with an agent, its sandboxes and its files."""

    id: str
    tenant: str
    title: str = Field(default="", max_length=200)
    agent: str = Field(pattern=NAME)
    """Who works: an engine with our tools, such as `langgraph`, or an agent program, such as `claude-code`."""
    engine: str
    model: str = Field(min_length=1, max_length=200)
    instructions: str = Field(default="", max_length=100_000)
    kinds: tuple[str, ...] = Field(default=(), max_length=20)
    """Kinds of sandbox it may use."""
    policy: Policy = Policy()
    budget: int | None = Field(default=None, ge=1)
    """Tokens it may use in all."""
    state: SessionState = SessionState.IDLE
    error: str | None = None
    """Why the last turn failed."""
    turn: int = 0
    """How many turns have begun."""
    plan: tuple[PlanStep, ...] = ()
    usage: SessionUsage = SessionUsage()
    sandboxes: Mapping[str, str] = {}
    """Ids of the sandboxes it has, by kind."""
    origin: Origin | None = None
    created_at: AwareDatetime
    changed_at: AwareDatetime
