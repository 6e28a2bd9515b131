"""Problems of task files, with their location."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from paddock.errors import ConfigError


@dataclass(frozen=True)
class TaskProblem:
    """One problem to fix."""

    file: str
    line: int | None
    field: str
    """Field path such as `inputs.0.target`; empty for the whole file."""
    message: str

    def __str__(self) -> str:
        location = self.file if self.line is None else f"{self.file}:{self.line}"
        return ": ".join(part for part in (location, self.field, self.message) if part)


class InvalidTaskError(ConfigError):
    """The task is not valid."""

    code = "INVALID_TASK"

    def __init__(self, problems: Iterable[TaskProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


def task_problems_from_error(error: ConfigError, file: str) -> list[TaskProblem]:
    """Split the message of a `ConfigError` into problems; `file` is the name used in its lines."""
    found = []
    for text in error.message.splitlines():
        match = re.fullmatch(rf"{re.escape(file)}(?::(\d+))?: (.*)", text, re.DOTALL)
        line, message = (match[1], match[2]) if match else (None, text)
        found.append(TaskProblem(file, int(line) if line else None, "", message))
    return found
