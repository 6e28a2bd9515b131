"""Rules that map lines of an agent's output to events."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from paddock.model.sandbox import FrozenModel
from paddock.model.task import RegularExpression


def _path(value: str) -> str:
    if not value or any(not part for part in value.split(".")):
        raise ValueError("must be a path such as message.content, or . for the whole")
    return value


def _one_or_more(value: object) -> object:
    return [value] if isinstance(value, str) else value


Path = Annotated[str, AfterValidator(lambda value: value if value == "." else _path(value))]
"""Keys and list indexes joined by dots, relative to the line or item; `.` is the whole."""
Paths = Annotated[tuple[Path, ...], BeforeValidator(_one_or_more), Field(min_length=1)]
"""The first existing value is used."""
Word = Annotated[str, AfterValidator(lambda value: value if value.startswith("=") or value == "." else _path(value))]
"""A path, or `=` followed by a constant."""
Words = Annotated[tuple[Word, ...], BeforeValidator(_one_or_more), Field(min_length=1)]


class ValueCondition(FrozenModel):
    """Condition on a value other than equality."""

    matches: RegularExpression | None = None
    """Regular expression to find in the text."""
    exists: bool | None = None
    """Whether a value exists."""

    @model_validator(mode="after")
    def _one(self) -> ValueCondition:
        if (self.matches is None) == (self.exists is None):
            raise ValueError("needs either 'matches' or 'exists', and not both")
        return self


Scalar = str | bool | int | float | None
When = Mapping[Path, ValueCondition | tuple[Scalar, ...] | Scalar]
"""Paths and their expected values: a value, one of several, or a condition. All must hold."""


class EmittedEvent(StrEnum):
    """Effect of a matching rule."""

    TEXT = "text"
    THINKING = "thinking"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    USAGE = "usage"
    ERROR = "error"
    """An error after which the agent continues."""
    DONE = "done"
    NOTHING = "nothing"
    """Recognised, without an event."""


_NEEDED: dict[EmittedEvent, tuple[str, ...]] = {
    EmittedEvent.TEXT: ("text",),
    EmittedEvent.THINKING: ("text",),
    EmittedEvent.TOOL_CALL: ("name",),
    EmittedEvent.TOOL_RESULT: ("text",),
    EmittedEvent.ERROR: ("text",),
}
_ALLOWED: dict[EmittedEvent, frozenset[str]] = {
    EmittedEvent.TEXT: frozenset({"text", "join"}),
    EmittedEvent.THINKING: frozenset({"text", "join"}),
    EmittedEvent.TOOL_CALL: frozenset({"id", "name", "arguments"}),
    EmittedEvent.TOOL_RESULT: frozenset({"id", "text", "failed"}),
    EmittedEvent.USAGE: frozenset({"input_tokens", "output_tokens"}),
    EmittedEvent.ERROR: frozenset({"text"}),
    EmittedEvent.DONE: frozenset(),
    EmittedEvent.NOTHING: frozenset(),
}


class OutputRule(FrozenModel):
    """Meaning of one kind of line or item. All matching rules are applied in order."""

    when: When = {}
    each: Path | None = None
    """A list in the line; `rules` apply to each item, with paths relative to the item."""
    rules: tuple[OutputRule, ...] = ()
    emit: EmittedEvent | None = None
    text: Words | None = None
    """Text of a message, tool result or error. Parts of a list are joined."""
    id: Words | None = None
    """Id of a tool call, to match its result."""
    name: Words | None = None
    arguments: Path | Mapping[str, Path] | None = None
    """Path of the tool's arguments, or one path per argument."""
    failed: Path | When | None = None
    """Condition of a failed tool: a path with a truthy value, or conditions as in `when`."""
    join: bool = False
    """Whether texts of consecutive lines are pieces of one."""
    input_tokens: Path | None = None
    output_tokens: Path | None = None

    @model_validator(mode="after")
    def _whole(self) -> OutputRule:
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


class TurnRule(FrozenModel):
    """Start of an agent's turn. Default: the first action after a tool's result."""

    when: When = {}
    id: Words | None = None
    """Lines with the same value belong to one turn."""


class ErrorRule(FrozenModel):
    """How an agent reports a failure, regardless of its exit code."""

    when: When | None = None
    """Conditions on a JSON line."""
    message: Words | None = None
    """Path of the message in that line."""
    output: RegularExpression | None = None
    """Regular expression to find in a line that is not JSON."""
    stream: Literal["stdout", "stderr"] | None = None
    """Stream of that line; default: both."""

    @model_validator(mode="after")
    def _one(self) -> ErrorRule:
        if (self.when is None) == (self.output is None):
            raise ValueError("needs either 'when' or 'output', and not both")
        if self.when is not None and self.stream is not None:
            raise ValueError("'stream' goes with 'output'")
        if self.message is not None and self.when is None:
            raise ValueError("'message' goes with 'when'; with 'output' the line itself is the message")
        return self


class OutputFormat(FrozenModel):
    """How to parse an agent's standard output."""

    format: Literal["lines", "json-lines"] = "lines"
    rules: tuple[OutputRule, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"format": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _readable(self) -> OutputFormat:
        if self.rules and self.format == "lines":
            raise ValueError("'rules' need 'format: json-lines'")
        return self
