"""Field types of task files: names, paths, patterns and texts, with validation messages."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, Field, WithJsonSchema

WORKSPACE = "/workspace"
"""Working directory of agents; relative paths of a task are below it."""
_NAME = r"^[a-z0-9][a-z0-9._-]{0,62}$"
_VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]{0,254}$"
_MODEL = r"^[^\s,]{1,200}$"
_WORD = r"^[^\s]{1,255}$"
_WEB = r"^https?://[^\s/]+[^\s]*$"


def _like(pattern: str, advice: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        if not re.fullmatch(pattern.removeprefix("^").removesuffix("$"), _printable(value)):
            raise ValueError(f"{value[:80]!r} {advice}")
        return value

    return check


def _regular(value: str) -> str:
    try:
        re.compile(value)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"is no regular expression: {error}") from None
    return value


def _printable(value: str) -> str:
    # Half of a pair of UTF-16, which JSON can write, can neither be stored nor sent.
    if "\0" in value or re.search(r"[\ud800-\udfff]", value):
        raise ValueError("contains characters that cannot be passed to a program, such as NUL; remove them")
    return value


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty")
    return value


def _in_the_sandbox(value: str) -> str:
    path = PurePosixPath(_printable(value))
    if not value.strip() or "\n" in value or ".." in path.parts or len(value) > 4000:
        raise ValueError("must be a path in the sandbox without '..', such as report.md, which is /workspace/report.md")
    return str(PurePosixPath(WORKSPACE) / path)


def require_workspace_path(value: str) -> str:
    if not PurePosixPath(value).is_relative_to(WORKSPACE):
        raise ValueError(
            f"{value!r} is outside {WORKSPACE}; inputs go below it, such as data/{value.rpartition('/')[2]}"
        )
    return value


def wrap_in_list(value: object) -> object:
    return [value] if isinstance(value, (str, dict)) else value


def split_command_words(value: object) -> object:
    """Split a command line into words as a shell does."""
    return shlex.split(value) if isinstance(value, str) else value


def validate_command(value: object) -> object:
    values = [value] if isinstance(value, str) else value
    if value is None:
        return value
    if not isinstance(values, (list, tuple)) or not all(isinstance(word, str) for word in values):
        raise ValueError("must be shell text, or a list of words that are all text; quote numbers")
    if not values or not values[0].strip():
        raise ValueError("must not be empty; leave it out for the preset's command")
    for word in values:
        _printable(word)
    return value


Identifier = Annotated[
    str,
    AfterValidator(_like(_NAME, "may have a-z, 0-9, '.', '_' and '-' only, up to 63, and starts with a-z or 0-9")),
    WithJsonSchema({"type": "string", "pattern": _NAME}),
]
RegularExpression = Annotated[
    str, AfterValidator(_printable), AfterValidator(_regular), Field(min_length=1, max_length=2000)
]
PrintableText = Annotated[str, AfterValidator(_printable)]
NonBlankText = Annotated[PrintableText, AfterValidator(_not_blank)]
SandboxPath = Annotated[str, AfterValidator(_in_the_sandbox)]
"""A path in the sandbox; relative paths start at the workspace."""
VariableName = Annotated[
    str,
    AfterValidator(
        _like(_VARIABLE, "is no name of a variable; use letters, digits and '_', not starting with a digit")
    ),
    WithJsonSchema({"type": "string", "pattern": _VARIABLE}),
]
VariableValue = Annotated[PrintableText, Field(max_length=100_000)]
ModelName = Annotated[
    str,
    AfterValidator(_like(_MODEL, "is no model's name; it has neither blanks nor commas")),
    WithJsonSchema({"type": "string", "pattern": _MODEL}),
]
StrictBoolean = Annotated[bool, Field(strict=True)]
StrictInteger = Annotated[int, Field(strict=True)]
StrictNumber = Annotated[float, Field(strict=True, allow_inf_nan=False)]
WebAddress = Annotated[
    str,
    AfterValidator(_like(_WEB, "is no address; write it like https://tools.example.org/mcp")),
    WithJsonSchema({"type": "string", "pattern": _WEB}),
    Field(max_length=2000),
]
ImageName = Annotated[
    str,
    AfterValidator(_like(_WORD, "is no image's name; it has no blanks")),
    WithJsonSchema({"type": "string", "pattern": _WORD}),
]
