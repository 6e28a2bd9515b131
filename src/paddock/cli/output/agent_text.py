"""Cleans text that agents and their programs wrote, for display on a terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from paddock.cli.output.formatting import sanitize_text

_CONTROL_SEQUENCES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, cursor movements
    r"|\x1b[\]PX^_][^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"  # titles, links and other string sequences
    r"|\x1b[ -/]*[0-~]?"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
_MAIN_ARGUMENTS = (
    "command",
    "file_path",
    "path",
    "filename",
    "pattern",
    "query",
    "url",
    "description",
    "prompt",
    "content",
)
"""Tool arguments that best describe a call, most descriptive first."""


def clean_terminal_text(text: str) -> str:
    """Remove terminal control sequences and keep what a terminal would finally show."""
    text = _CONTROL_SEQUENCES.sub("", text.replace("\r\n", "\n"))
    # A carriage return overwrites the line, so only the last version is kept.
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")]
    return sanitize_text("\n".join(lines).expandtabs(4))


def clean_terminal_line(text: str) -> str:
    return " ".join(clean_terminal_text(text).split())


def summarize_tool_arguments(arguments: object) -> str:
    """Return a tool's arguments on one line: the most descriptive one, or all of them."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return clean_terminal_line(str(arguments))
    if not isinstance(arguments, Mapping):
        return "" if arguments is None else clean_terminal_line(json.dumps(arguments, ensure_ascii=False, default=str))
    for name in _MAIN_ARGUMENTS:
        if isinstance(arguments.get(name), str) and arguments[name].strip():
            return clean_terminal_line(arguments[name])
    return clean_terminal_line(" ".join(f"{name}={_argument_text(value)}" for name, value in arguments.items()))


def _argument_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
