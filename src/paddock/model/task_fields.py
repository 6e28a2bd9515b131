"""Field types of task files: names, paths, patterns and texts, with validation messages."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, Field, WithJsonSchema

from paddock.config.field_types import (
    Identifier,
    PrintableText,
    StrictBoolean,
    StrictInteger,
    StrictNumber,
    VariableName,
    VariableValue,
    WebAddress,
    must_be_printable,
    must_match,
    split_command_words,
    wrap_in_list,
)

__all__ = [
    "WORKSPACE",
    "Identifier",
    "ImageName",
    "ModelName",
    "NonBlankText",
    "PrintableText",
    "RegularExpression",
    "SandboxPath",
    "StrictBoolean",
    "StrictInteger",
    "StrictNumber",
    "VariableName",
    "VariableValue",
    "WebAddress",
    "require_workspace_path",
    "split_command_words",
    "validate_command",
    "wrap_in_list",
]

WORKSPACE = "/workspace"
"""Working directory of agents; relative paths of a task are below it."""
_MODEL = r"^[^\s,]{1,200}$"
_WORD = r"^[^\s]{1,255}$"


def _regular(value: str) -> str:
    try:
        re.compile(value)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"is no regular expression: {error}") from None
    return value


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty")
    return value


def _in_the_sandbox(value: str) -> str:
    path = PurePosixPath(must_be_printable(value))
    if not value.strip() or "\n" in value or ".." in path.parts or len(value) > 4000:
        raise ValueError("must be a path in the sandbox without '..', such as report.md, which is /workspace/report.md")
    return str(PurePosixPath(WORKSPACE) / path)


def require_workspace_path(value: str) -> str:
    if not PurePosixPath(value).is_relative_to(WORKSPACE):
        raise ValueError(
            f"{value!r} is outside {WORKSPACE}; inputs go below it, such as data/{value.rpartition('/')[2]}"
        )
    return value


def validate_command(value: object) -> object:
    values = [value] if isinstance(value, str) else value
    if value is None:
        return value
    if not isinstance(values, (list, tuple)) or not all(isinstance(word, str) for word in values):
        raise ValueError("must be shell text, or a list of words that are all text; quote numbers")
    if not values or not values[0].strip():
        raise ValueError("must not be empty; leave it out for the preset's command")
    for word in values:
        must_be_printable(word)
    return value


RegularExpression = Annotated[
    str, AfterValidator(must_be_printable), AfterValidator(_regular), Field(min_length=1, max_length=2000)
]
NonBlankText = Annotated[PrintableText, AfterValidator(_not_blank)]
SandboxPath = Annotated[str, AfterValidator(_in_the_sandbox)]
"""A path in the sandbox; relative paths start at the workspace."""
ModelName = Annotated[
    str,
    AfterValidator(must_match(_MODEL, "is no model's name; it has neither blanks nor commas")),
    WithJsonSchema({"type": "string", "pattern": _MODEL}),
]
ImageName = Annotated[
    str,
    AfterValidator(must_match(_WORD, "is no image's name; it has no blanks")),
    WithJsonSchema({"type": "string", "pattern": _WORD}),
]
