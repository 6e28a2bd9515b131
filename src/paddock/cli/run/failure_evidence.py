"""Rows that explain why a run failed: notes, evidence and last output."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from paddock.cli.output.agent_text import clean_terminal_line, clean_terminal_text
from paddock.cli.output.formatting import format_size
from paddock.cli.run.run_progress import SUCCEEDED_STATE
from paddock.cli.run.run_render import format_run_duration, format_run_state

if TYPE_CHECKING:
    from rich.text import Text

_MAX_LINES = 6
_NOTES_KEY = "deliverables"
_OUTPUT_KEY = "last_output"
_BYTE_KEYS = ("used", "limit", "volumes", "bytes", "size")
_MIN_MATCH_CHARACTERS = 8
"""Minimum length of equal text to count as the same message."""


def build_evidence_rows(run: Mapping[str, Any], final_messages: Sequence[str] = ()) -> list[tuple[str, Text]]:
    """Return rows of notes about deliverables and, unless the run succeeded, its evidence and last output.

    `final_messages` come from the agent, latest first. Text that the run's reason already contains is left out.
    """
    result = run.get("result") or {}
    evidence, reason = result.get("evidence") or {}, clean_terminal_line(str(result.get("reason") or ""))
    found = _labelled_rows("notes", _value_lines(_NOTES_KEY, evidence.get(_NOTES_KEY) or []))
    if run.get("state") in (SUCCEEDED_STATE, None):
        return found
    for name, value in evidence.items():
        if name not in (_NOTES_KEY, _OUTPUT_KEY):
            found += _labelled_rows(
                format_run_state(clean_terminal_line(str(name))),
                [line for line in _value_lines(name, value) if not _is_in_reason(line, reason)],
            )
    return found + _last_output_rows(evidence.get(_OUTPUT_KEY), final_messages, reason, by_agent=bool(run.get("agent")))


def _last_output_rows(
    output: object, final_messages: Sequence[str], reason: str, by_agent: bool
) -> list[tuple[str, Text]]:
    for text in final_messages:
        if not _is_in_reason(clean_terminal_line(text), reason):
            return _labelled_rows("last words", _last_lines(text))
    streams = output.values() if isinstance(output, Mapping) else [output or ""]
    lines = [line for text in streams for line in _last_lines(str(text))]
    if by_agent:
        # Agents write JSON for programs; other lines are meant for people.
        lines = [line for line in lines if not line.lstrip().startswith(("{", "["))]
    return _labelled_rows(
        "last output", [line for line in lines if not _is_in_reason(clean_terminal_line(line), reason)][-_MAX_LINES:]
    )


def _last_lines(text: str) -> list[str]:
    return [line for line in clean_terminal_text(text).splitlines() if line.strip()][-_MAX_LINES:]


def _is_in_reason(text: str, reason: str) -> bool:
    """Return whether the reason already contains the text; reasons quote last lines and errors."""
    if reason.endswith(f": {text}"):
        return True
    return (len(text) >= _MIN_MATCH_CHARACTERS and text in reason) or (
        len(reason) >= _MIN_MATCH_CHARACTERS and text.startswith(reason)
    )


def _value_lines(name: str, value: object) -> list[str]:
    if isinstance(value, Mapping):
        return [
            ", ".join(
                f"{format_run_state(clean_terminal_line(str(key)))} {_format_value(str(key), each)}"
                for key, each in value.items()
            )
        ]
    if isinstance(value, list | tuple):
        return [_format_value(name, each) for each in value]
    return [_format_value(name, value)] if not isinstance(value, str) else _last_lines(value)


def _format_value(name: str, value: object) -> str:
    """Format a value, with units if its name implies them."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if name.rpartition("_")[2] in _BYTE_KEYS:
            return format_size(value)
        if name.rpartition("_")[2] == "seconds":
            return format_run_duration(value)
    return clean_terminal_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))


def _labelled_rows(name: str, lines: Sequence[str]) -> list[tuple[str, Text]]:
    from rich.text import Text

    return [("" if index else name, Text(line, style="dim")) for index, line in enumerate(lines)]
