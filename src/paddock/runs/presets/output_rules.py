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


ValuePath = Annotated[str, AfterValidator(lambda value: value if value == "." else _path(value))]
"""Keys and list indexes joined by dots, relative to the line or item; `.` is the whole."""
ValuePaths = Annotated[tuple[ValuePath, ...], BeforeValidator(_one_or_more), Field(min_length=1)]
"""The first existing value is used."""
ValueExpression = Annotated[
    str, AfterValidator(lambda value: value if value.startswith("=") or value == "." else _path(value))
]
"""A path, or `=` followed by a constant."""
ValueExpressions = Annotated[tuple[ValueExpression, ...], BeforeValidator(_one_or_more), Field(min_length=1)]


class OutputValueCondition(FrozenModel):
    """Condition on a value other than equality."""

    matches: RegularExpression | None = None
    """Regular expression to find in the text."""
    exists: bool | None = None
    """Whether a value exists."""

    @model_validator(mode="after")
    def _one(self) -> OutputValueCondition:
        if (self.matches is None) == (self.exists is None):
            raise ValueError("needs either 'matches' or 'exists', and not both")
        return self


Scalar = str | bool | int | float | None
ValueConditions = Mapping[ValuePath, OutputValueCondition | tuple[Scalar, ...] | Scalar]
"""Paths and their expected values: a value, one of several, or a condition. All must hold."""


class EmittedEventKind(StrEnum):
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


_NEEDED: dict[EmittedEventKind, tuple[str, ...]] = {
    EmittedEventKind.TEXT: ("text",),
    EmittedEventKind.THINKING: ("text",),
    EmittedEventKind.TOOL_CALL: ("name",),
    EmittedEventKind.TOOL_RESULT: ("text",),
    EmittedEventKind.ERROR: ("text",),
}
_ALLOWED: dict[EmittedEventKind, frozenset[str]] = {
    EmittedEventKind.TEXT: frozenset({"text", "join"}),
    EmittedEventKind.THINKING: frozenset({"text", "join"}),
    EmittedEventKind.TOOL_CALL: frozenset({"id", "name", "arguments"}),
    EmittedEventKind.TOOL_RESULT: frozenset({"id", "text", "failed"}),
    EmittedEventKind.USAGE: frozenset({"input_tokens", "output_tokens"}),
    EmittedEventKind.ERROR: frozenset({"text"}),
    EmittedEventKind.DONE: frozenset(),
    EmittedEventKind.NOTHING: frozenset(),
}


class AgentOutputRule(FrozenModel):
    """Meaning of one kind of line or item. All matching rules are applied in order."""

    when: ValueConditions = {}
    each: ValuePath | None = None
    """A list in the line; `rules` apply to each item, with paths relative to the item."""
    rules: tuple[AgentOutputRule, ...] = ()
    emit: EmittedEventKind | None = None
    text: ValueExpressions | None = None
    """Text of a message, tool result or error. Parts of a list are joined."""
    id: ValueExpressions | None = None
    """Id of a tool call, to match its result."""
    name: ValueExpressions | None = None
    arguments: ValuePath | Mapping[str, ValuePath] | None = None
    """Path of the tool's arguments, or one path per argument."""
    failed: ValuePath | ValueConditions | None = None
    """Condition of a failed tool: a path with a truthy value, or conditions as in `when`."""
    join: bool = False
    """Whether texts of consecutive lines are pieces of one."""
    input_tokens: ValuePath | None = None
    output_tokens: ValuePath | None = None

    @model_validator(mode="after")
    def _whole(self) -> AgentOutputRule:
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


class AgentTurnRule(FrozenModel):
    """Start of an agent's turn. Default: the first action after a tool's result."""

    when: ValueConditions = {}
    id: ValueExpressions | None = None
    """Lines with the same value belong to one turn."""


class AgentErrorRule(FrozenModel):
    """How an agent reports a failure, regardless of its exit code."""

    when: ValueConditions | None = None
    """Conditions on a JSON line."""
    message: ValueExpressions | None = None
    """Path of the message in that line."""
    output: RegularExpression | None = None
    """Regular expression to find in a line that is not JSON."""
    stream: Literal["stdout", "stderr"] | None = None
    """Stream of that line; default: both."""

    @model_validator(mode="after")
    def _one(self) -> AgentErrorRule:
        if (self.when is None) == (self.output is None):
            raise ValueError("needs either 'when' or 'output', and not both")
        if self.when is not None and self.stream is not None:
            raise ValueError("'stream' goes with 'output'")
        if self.message is not None and self.when is None:
            raise ValueError("'message' goes with 'when'; with 'output' the line itself is the message")
        return self


class AgentOutputFormat(FrozenModel):
    """How to parse an agent's standard output."""

    format: Literal["lines", "json-lines"] = "lines"
    rules: tuple[AgentOutputRule, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"format": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _readable(self) -> AgentOutputFormat:
        if self.rules and self.format == "lines":
            raise ValueError("'rules' need 'format: json-lines'")
        return self
