"""What a scenario says: turns of abstract actions that are rendered to whatever format and tools a client offers."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import AfterValidator, Field, JsonValue, field_validator, model_validator

from paddock.config.base import Section
from paddock.config.units import Seconds
from paddock.llm.neutral import Finish
from paddock.llm.script import template


def _regex(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
    return pattern


Words = Annotated[str, AfterValidator(template.check)]
Pattern = Annotated[str, AfterValidator(_regex)]
Times = Annotated[int, Field(ge=1, le=1000)] | Literal["always"]


class Action(Section):
    """One thing a model does. Most have a short form: the value of their chief field alone."""

    short: ClassVar[str | None] = None
    offers: ClassVar[bool] = False
    """Whether it needs a tool of the client's."""

    @model_validator(mode="before")
    @classmethod
    def _long_form(cls, value: object) -> object:
        if value is None:
            return {}
        return {cls.short: value} if cls.short is not None and not isinstance(value, dict) else value


class Say(Action):
    """Text. Texts that follow each other are one."""

    short = "text"
    text: Words


class Think(Action):
    """A thought, where the format has a place for it."""

    short = "text"
    text: Words


class Refuse(Action):
    """A refusal, which also ends the answer as one."""

    short = "text"
    text: Words


class Shell(Action):
    """A shell command, run by the client's own tool."""

    short = "command"
    offers = True
    command: Words = Field(min_length=1)
    description: Words = "Run a command of the script"
    """For tools that want one."""


class WriteFile(Action):
    """A file, written by the client's own tool, or else by its shell."""

    offers = True
    path: Words = Field(min_length=1)
    content: Words


class ReadFile(Action):
    """A file, read by the client's own tool, or else by its shell."""

    short = "path"
    offers = True
    path: Words = Field(min_length=1)


class Call(Action):
    """A call of one of the client's tools."""

    short = "tool"
    offers = True
    tool: str = Field(min_length=1)
    """Its name, also without a prefix such as `mcp__server__`; `*` and `?` stand for any letters."""
    arguments: dict[str, JsonValue] = {}
    """What is required and left out is filled in by the tool's schema."""

    @field_validator("arguments")
    @classmethod
    def _words(cls, value: dict[str, JsonValue]) -> dict[str, JsonValue]:
        template.check_all(value)
        return value


class Fail(Action):
    """An error: with its status when nothing was said yet, else in the stream."""

    short = "status"
    status: int = Field(default=500, ge=400, le=599)
    message: Words = "the script says so"
    retry_after: Seconds | None = Field(default=None, ge=0, le=86_400)
    """Sent as `Retry-After`, in whole seconds."""
    times: Times = 1
    """How many requests fail before the turn goes on."""


class Stall(Action):
    """A pause: before the answer begins when it comes first, else within it."""

    short = "seconds"
    seconds: Seconds = Field(ge=0, le=3600)
    times: Times = "always"


class Drop(Action):
    """The connection breaks."""

    times: Times = 1


class Ends(Action):
    """Why the answer ends; without it, that follows from the rest."""

    short = "reason"
    reason: Finish


class Uses(Action):
    """The tokens the answer claims to have used; without it, they are counted from the lengths of texts."""

    input: int = Field(default=0, ge=0, le=10**9)
    output: int = Field(default=0, ge=0, le=10**9)
    cache_read: int = Field(default=0, ge=0, le=10**9)
    cache_write: int = Field(default=0, ge=0, le=10**9)
    reasoning: int = Field(default=0, ge=0, le=10**9)


Trouble: TypeAlias = Fail | Stall | Drop


class Step(Section):
    """One action of a turn: exactly one of these."""

    say: Say | None = None
    think: Think | None = None
    refuse: Refuse | None = None
    shell: Shell | None = None
    write_file: WriteFile | None = None
    read_file: ReadFile | None = None
    call: Call | None = None
    fail: Fail | None = None
    stall: Stall | None = None
    drop: Drop | None = None
    finish: Ends | None = None
    usage: Uses | None = None

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, value: object) -> object:
        if value == "drop":
            return {"drop": {}}
        # A key without a value is an action in its shortest form, not one that is left out.
        return {key: {} if each is None else each for key, each in value.items()} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if len(self.model_fields_set) != 1:
            names = ", ".join(type(self).model_fields)
            raise ValueError(f"a step is exactly one action: one of {names}")
        return self

    @property
    def action(self) -> Action:
        (name,) = self.model_fields_set
        action = getattr(self, name)
        assert isinstance(action, Action)
        return action


class When(Section):
    """Conditions that must all hold. All but `offers` are regular expressions, found anywhere."""

    prompt: Pattern | None = None
    """In what the user asked last."""
    system: Pattern | None = None
    """In the system prompt."""
    last: Pattern | None = None
    """In the last message, whoever it is from."""
    tool: Pattern | None = None
    """In what the tools have just answered."""
    model: Pattern | None = None
    """In the model's name."""
    offers: str | None = None
    """A tool that the client offers, as in `call`."""

    @model_validator(mode="after")
    def _some(self) -> Self:
        if not self.model_fields_set:
            raise ValueError(f"name a condition: {', '.join(type(self).model_fields)}")
        return self


class Turn(Section):
    """One answer. A list of steps, or one step alone, is the short form."""

    do: tuple[Step, ...]
    """Actions in their order. Several calls are made at once."""
    when: When | None = None
    """What must hold; a turn for which it does not is passed over."""

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        if isinstance(value, list):
            return {"do": value}
        if isinstance(value, str) or (isinstance(value, dict) and not value.keys() & {"do", "when"}):
            return {"do": [value]}
        return value

    @model_validator(mode="after")
    def _some(self) -> Self:
        if not 1 <= len(self.do) <= 200:
            raise ValueError("a turn has 1 to 200 steps")
        return self

    @property
    def actions(self) -> tuple[Action, ...]:
        return tuple(step.action for step in self.do)

    @property
    def answers(self) -> bool:
        """Whether it gives an answer at all, and not only trouble before the next one."""
        return any(not isinstance(action, Fail | Stall | Drop) for action in self.actions)

    @property
    def needs_tools(self) -> bool:
        return any(action.offers for action in self.actions)


class Scenario(Section):
    """A script for a model."""

    name: str = Field(default="", pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,62})?$")
    """What answers are labelled with; the file's name unless given."""
    description: str = ""
    turns: tuple[Turn, ...] = Field(default=(), max_length=10_000)
    """The answers of a conversation, in their order."""
    rules: tuple[Turn, ...] = Field(default=(), max_length=1000)
    """Answers to whatever meets their conditions, at any time, before the turns."""
    otherwise: Turn = Turn(do=(Step(say=Say(text="Done.")),))
    """The answer when the turns are over."""
    side: Words | None = None
    """What calls beside the conversation are told, such as those for a title; the script's name unless given."""
    each_prompt: bool = False
    """Whether the turns begin again whenever the user asks something new."""
    pace: Seconds = Field(default=0, ge=0, le=10)
    """The pause between two pieces of a streamed text."""

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if not self.turns and not self.rules:
            raise ValueError("a scenario needs turns or rules")
        for index, rule in enumerate(self.rules):
            if rule.when is None:
                raise ValueError(f"rules.{index} needs a when; what is always said belongs into otherwise")
        if not self.otherwise.answers:
            raise ValueError("otherwise must answer something, not only make trouble")
        return self

    @property
    def needs_tools(self) -> bool:
        """Whether the turns can only be told to a client that offers tools."""
        return any(turn.needs_tools for turn in self.turns)


def action_names() -> list[str]:
    return list(Step.model_fields)


_MODELS: dict[str, type[Section]] = {
    "turns": Turn,
    "rules": Turn,
    "otherwise": Turn,
    "when": When,
    "do": Step,
    "say": Say,
    "think": Think,
    "refuse": Refuse,
    "shell": Shell,
    "write_file": WriteFile,
    "read_file": ReadFile,
    "call": Call,
    "fail": Fail,
    "stall": Stall,
    "drop": Drop,
    "finish": Ends,
    "usage": Uses,
}


def known_fields(location: tuple[Any, ...]) -> list[str]:
    """The fields there are at a place in a scenario, for complaints about others."""
    for part in reversed(location):
        if part in _MODELS:
            return list(_MODELS[part].model_fields)
    return list(Scenario.model_fields)
