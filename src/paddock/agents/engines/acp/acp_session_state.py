"""The engine's saved state of a conversation, from which it resumes after a restart.

Aliases are the stored names of fields.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from paddock.model.sessions import ToolCall


class ObservedCall(BaseModel):
    """A tool call of the agent, as far as it was reported."""

    model_config = ConfigDict(validate_by_name=True, serialize_by_alias=True)

    id: str
    """The agent's own id."""
    title: str = ""
    kind: str = "other"
    input: Any = None
    call: ToolCall | None = None
    """The call in the session's records, once recorded."""
    start_emitted: bool = Field(default=False, alias="begun")
    """Whether the start of the call was emitted."""


class PendingPermission(BaseModel):
    """A permission request that the agent waits for."""

    request: int | str
    params: dict[str, Any]


class AcpSessionState(BaseModel):
    """Saved with every step; output up to `cursor` is processed, except for what this state contains."""

    model_config = ConfigDict(extra="ignore", validate_by_name=True, serialize_by_alias=True)

    generation: int = 0
    """Number of sandboxes that the session has had."""
    sandbox: str | None = None
    process: int = 0
    """Number of starts of the program in the sandbox."""
    ready: bool = False
    """Whether the handshake is done and the process has the session."""
    model: str | None = None
    """Model that the process was started with."""
    session: str | None = None
    """The agent's own id of the session."""
    fresh: bool = True
    """Whether the agent has received no prompt yet."""
    images: bool = False
    """Whether the agent accepts images."""
    loads: bool = False
    """Whether the agent can load its sessions after a restart."""
    cursor: int = 0
    requests: int = 0
    """Number of requests sent to the process."""

    received_number: int | None = Field(default=None, alias="told")
    """Number of the newest message that the agent received."""
    prompt_number: int = Field(default=0, alias="telling")
    """Number of the newest message in the running prompt."""

    turn: int = 0
    known: list[str] = Field(default_factory=list)
    """Ids of the turn's messages that the agent received."""
    prompt: int | None = None
    """Id of the running request."""
    line: str | None = None
    """The running request itself, until it was surely sent."""
    stopped: bool = False
    """Whether the prompt was cancelled."""
    ended: bool = False
    """Whether the last prompt of the turn completed."""
    pending_permissions: list[PendingPermission] = Field(default_factory=list, alias="asked")
    calls: dict[str, ObservedCall] = Field(default_factory=dict)
    """Open calls by the agent's ids."""
    message_count: int = Field(default=0, alias="spoken")
    """Number of the agent's messages in the turn, as of the last save."""
    call_count: int = Field(default=0, alias="made")
    """Number of calls in the turn."""
    notes: list[str] = Field(default_factory=list)
    """Notes for the agent, sent with its next prompt."""
    note_prompt_count: int = Field(default=0, alias="noted")
    """Number of prompts in the turn that were sent because of notes."""

    def begin_turn(self, turn: int) -> None:
        """Reset the state of the previous turn."""
        if turn != self.turn:
            self.turn = turn
            self.known, self.notes = [], []
            self.message_count = self.call_count = self.note_prompt_count = 0
            self.stopped = self.ended = False
            self.forget_prompt()

    def forget_sandbox(self) -> None:
        """Reset the sandbox and the process; the agent's own session files stay in its home volume."""
        self.sandbox = None
        self.process = 0
        self.ready = False

    def forget_prompt(self) -> None:
        """Reset the running prompt; a prompt that was not sent does not count as received."""
        if self.prompt is not None and self.line is None:
            self.received_number = self.prompt_number
        elif self.prompt is not None and self.received_number is None:
            self.fresh = True
        self.prompt = self.line = None
        self.pending_permissions, self.calls = [], {}
