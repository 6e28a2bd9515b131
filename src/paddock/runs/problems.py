"""What is wrong with a task: where it stands, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from paddock.errors import ConfigError


@dataclass(frozen=True)
class Problem:
    """One thing to put right."""

    file: str
    line: int | None
    field: str
    """The way to it, such as `inputs.0.target`; empty for the file as a whole."""
    message: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return ": ".join(part for part in (place, self.field, self.message) if part)


class TaskError(ConfigError):
    """The task is not valid."""

    code = "INVALID_TASK"

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


def problems_of(error: ConfigError, file: str) -> list[Problem]:
    """What another room complains of, line by line; `file` is what it was told to call the file."""
    found = []
    for text in error.message.splitlines():
        match = re.fullmatch(rf"{re.escape(file)}(?::(\d+))?: (.*)", text, re.DOTALL)
        line, message = (match[1], match[2]) if match else (None, text)
        found.append(Problem(file, int(line) if line else None, "", message))
    return found
