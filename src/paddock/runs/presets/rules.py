"""Rules that say what the lines of an agent's output mean."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from paddock.model.sandbox import Frozen
from paddock.model.task import Pattern


def _path(value: str) -> str:
    if not value or any(not part for part in value.split(".")):
        raise ValueError("must be a path such as message.content, or . for all of it")
    return value


def _one_or_more(value: object) -> object:
    return [value] if isinstance(value, str) else value


Path = Annotated[str, AfterValidator(lambda value: value if value == "." else _path(value))]
"""Names and numbers of places in lists with dots between them, from the line or the item; `.` is all of it."""
Paths = Annotated[tuple[Path, ...], BeforeValidator(_one_or_more), Field(min_length=1)]
"""The first that is there counts."""
Word = Annotated[str, AfterValidator(lambda value: value if value.startswith("=") or value == "." else _path(value))]
"""A path, or `=` and the word itself."""
Words = Annotated[tuple[Word, ...], BeforeValidator(_one_or_more), Field(min_length=1)]


class Probe(Frozen):
    """What a value must be, where it is not simply equal to something."""

    matches: Pattern | None = None
    """A regular expression that is found in it, it being text."""
    exists: bool | None = None
    """Whether there is a value at all."""

    @model_validator(mode="after")
    def _one(self) -> Probe:
        if (self.matches is None) == (self.exists is None):
            raise ValueError("needs either 'matches' or 'exists', and not both")
        return self


Scalar = str | bool | int | float | None
When = Mapping[Path, Probe | tuple[Scalar, ...] | Scalar]
"""Paths, and what is found there: a value, one of several, or a probe. All must hold."""


class Emit(StrEnum):
    """What a rule makes of what it fits."""

    TEXT = "text"
    THINKING = "thinking"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    USAGE = "usage"
    ERROR = "error"
    """Something went wrong, but the agent goes on."""
    DONE = "done"
    NOTHING = "nothing"
    """Known, and of no interest."""


_NEEDED: dict[Emit, tuple[str, ...]] = {
    Emit.TEXT: ("text",),
    Emit.THINKING: ("text",),
    Emit.TOOL_CALL: ("name",),
    Emit.TOOL_RESULT: ("text",),
    Emit.ERROR: ("text",),
}
_ALLOWED: dict[Emit, frozenset[str]] = {
    Emit.TEXT: frozenset({"text", "join"}),
    Emit.THINKING: frozenset({"text", "join"}),
    Emit.TOOL_CALL: frozenset({"id", "name", "arguments"}),
    Emit.TOOL_RESULT: frozenset({"id", "text", "failed"}),
    Emit.USAGE: frozenset({"input_tokens", "output_tokens"}),
    Emit.ERROR: frozenset({"text"}),
    Emit.DONE: frozenset(),
    Emit.NOTHING: frozenset(),
}


class Rule(Frozen):
    """What one sort of line, or of item in a line, means. All rules that fit a line are applied, in their order."""

    when: When = {}
    each: Path | None = None
    """A list in the line; `rules` are applied to each of its items, whose paths begin at the item."""
    rules: tuple[Rule, ...] = ()
    emit: Emit | None = None
    text: Words | None = None
    """What was said, or came of a tool, or went wrong. Parts of a list are put together."""
    id: Words | None = None
    """Of a tool's call, to find its result."""
    name: Words | None = None
    arguments: Path | Mapping[str, Path] | None = None
    """A path of the tool's arguments, or a path for each."""
    failed: Path | When | None = None
    """When a tool has failed: a path where something other than nothing, 0 and false is, or as in `when`."""
    join: bool = False
    """Whether the texts of lines that follow each other are pieces of one."""
    input_tokens: Path | None = None
    output_tokens: Path | None = None

    @model_validator(mode="after")
    def _whole(self) -> Rule:
        if (self.each is None) == (self.emit is None):
            raise ValueError("needs either 'emit' or 'each' with 'rules', and not both")
        if bool(self.rules) != (self.each is not None):
            raise ValueError("'each' and 'rules' go together")
        if self.emit is None:
            return self
        given = self.model_fields_set - {"when", "emit"}
        missing = [name for name in _NEEDED.get(self.emit, ()) if name not in given]
        if missing:
            raise ValueError(f"'emit: {self.emit}' needs '{missing[0]}'")
        if beyond := sorted(given - _ALLOWED[self.emit]):
            raise ValueError(f"'{beyond[0]}' has no meaning with 'emit: {self.emit}'")
        return self


class TurnRule(Frozen):
    """Where a turn of the agent begins. Without it, one begins with what the agent does first after a tool's result."""

    when: When = {}
    id: Words | None = None
    """Lines of which this is the same belong to the same turn."""


class ErrorRule(Frozen):
    """How an agent tells that it has failed, whatever its exit code says."""

    when: When | None = None
    """A line of JSON in which all this holds."""
    message: Words | None = None
    """Where in that line it says why."""
    output: Pattern | None = None
    """A regular expression that is found in a line that is no JSON."""
    stream: Literal["stdout", "stderr"] | None = None
    """Where that line is written; either if not given."""

    @model_validator(mode="after")
    def _one(self) -> ErrorRule:
        if (self.when is None) == (self.output is None):
            raise ValueError("needs either 'when' or 'output', and not both")
        if self.when is not None and self.stream is not None:
            raise ValueError("'stream' goes with 'output'")
        if self.message is not None and self.when is None:
            raise ValueError("'message' goes with 'when'; with 'output' the line itself is the message")
        return self


class Output(Frozen):
    """How the standard output of an agent is read."""

    format: Literal["lines", "json-lines"] = "lines"
    rules: tuple[Rule, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"format": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _readable(self) -> Output:
        if self.rules and self.format == "lines":
            raise ValueError("'rules' need 'format: json-lines'")
        return self
