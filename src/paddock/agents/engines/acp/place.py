"""Where the engine is in a conversation: all that it has to find again after a restart."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from paddock.model.sessions import Call


class SeenCall(BaseModel):
    """A tool that the agent uses, as far as it has told of it."""

    id: str
    """The agent's own."""
    title: str = ""
    kind: str = "other"
    input: Any = None
    call: Call | None = None
    """As it is in the session's records, once it is there."""
    begun: bool = False
    """Whether it is told already that it runs."""


class Asked(BaseModel):
    """A permission that the agent waits for."""

    request: int | str
    params: dict[str, Any]


class Place(BaseModel):
    """Saved with every step. Everything up to `cursor` has been dealt with, except what is kept here."""

    model_config = ConfigDict(extra="ignore")

    generation: int = 0
    """How many boxes the session has had."""
    sandbox: str | None = None
    process: int = 0
    """How often the program was started in the box."""
    ready: bool = False
    """Whether the process was greeted and has the session."""
    model: str | None = None
    """Which model the process was started for."""
    session: str | None = None
    """The agent's own id of the session."""
    fresh: bool = True
    """Whether it was told nothing yet."""
    images: bool = False
    """Whether it looks at pictures."""
    loads: bool = False
    """Whether it finds its sessions again after it was started anew."""
    cursor: int = 0
    requests: int = 0
    """How many requests were sent to the process."""

    told: int | None = None
    """The number of the newest message that the agent was given; what is newer it is still to be told."""
    telling: int = 0
    """That of the newest in the prompt that is under way."""

    turn: int = 0
    known: list[str] = Field(default_factory=list)
    """Messages of the turn that the agent was given."""
    prompt: int | None = None
    """The request that is under way."""
    line: str | None = None
    """That request, until it is certain that it was sent."""
    stopped: bool = False
    """Whether it was cut off before its end."""
    ended: bool = False
    """Whether the last prompt of the turn came to its end."""
    asked: list[Asked] = Field(default_factory=list)
    calls: dict[str, SeenCall] = Field(default_factory=dict)
    """Those under way, by the agent's ids."""
    spoken: int = 0
    """How many messages of the agent the turn has, as far as was saved."""
    made: int = 0
    """How many calls the turn has had."""
    notes: list[str] = Field(default_factory=list)
    """What the agent has to be told, and cannot be before its next prompt."""
    noted: int = 0
    """How often it went on in the turn because of that."""

    def begin(self, turn: int) -> None:
        """Forget what was of the turn before."""
        if turn != self.turn:
            self.turn = turn
            self.known, self.notes = [], []
            self.spoken = self.made = self.noted = 0
            self.stopped = self.ended = False
            self.forget_prompt()

    def forget_box(self) -> None:
        """The box is gone, and the process with it; what the agent has kept of the session is in its home."""
        self.sandbox = None
        self.process = 0
        self.ready = False

    def forget_prompt(self) -> None:
        """Nothing is under way any more; what was not sent was not told."""
        if self.prompt is not None and self.line is None:
            self.told = self.telling
        elif self.prompt is not None and self.told is None:
            self.fresh = True
        self.prompt = self.line = None
        self.asked, self.calls = [], {}
