"""Field types of declarations: names, addresses and texts, with validation messages."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Annotated

from pydantic import AfterValidator, Field, WithJsonSchema

_NAME = r"^[a-z0-9][a-z0-9._-]{0,62}$"
_VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]{0,254}$"
_WEB = r"^https?://[^\s/]+[^\s]*$"


def must_match(pattern: str, advice: str) -> Callable[[str], str]:
    """Return a validator for texts of a pattern; `advice` follows the value in its message."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern.removeprefix("^").removesuffix("$"), must_be_printable(value)):
            raise ValueError(f"{value[:80]!r} {advice}")
        return value

    return check


def must_be_printable(value: str) -> str:
    """Refuse text that programs cannot receive."""
    # Half of a pair of UTF-16, which JSON can write, can neither be stored nor sent.
    if "\0" in value or re.search(r"[\ud800-\udfff]", value):
        raise ValueError("contains characters that cannot be passed to a program, such as NUL; remove them")
    return value


def wrap_in_list(value: object) -> object:
    return [value] if isinstance(value, (str, dict)) else value


def split_command_words(value: object) -> object:
    """Split a command line into words as a shell does."""
    return shlex.split(value) if isinstance(value, str) else value


Identifier = Annotated[
    str,
    AfterValidator(must_match(_NAME, "may have a-z, 0-9, '.', '_' and '-' only, up to 63, and starts with a-z or 0-9")),
    WithJsonSchema({"type": "string", "pattern": _NAME}),
]
PrintableText = Annotated[str, AfterValidator(must_be_printable)]
VariableName = Annotated[
    str,
    AfterValidator(
        must_match(_VARIABLE, "is no name of a variable; use letters, digits and '_', not starting with a digit")
    ),
    WithJsonSchema({"type": "string", "pattern": _VARIABLE}),
]
VariableValue = Annotated[PrintableText, Field(max_length=100_000)]
StrictBoolean = Annotated[bool, Field(strict=True)]
StrictInteger = Annotated[int, Field(strict=True)]
StrictNumber = Annotated[float, Field(strict=True, allow_inf_nan=False)]
WebAddress = Annotated[
    str,
    AfterValidator(must_match(_WEB, "is no address; write it like https://tools.example.org/mcp")),
    WithJsonSchema({"type": "string", "pattern": _WEB}),
    Field(max_length=2000),
]
