"""What there is to go by when a run did not succeed, for people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from paddock.cli.output import size
from paddock.cli.run_progress import SUCCEEDED, one_line, tidy
from paddock.cli.run_shapes import took, words

if TYPE_CHECKING:
    from rich.text import Text

_MOST_LINES = 6
_NOTES = "deliverables"
_OUTPUT = "last_output"
_SIZES = ("used", "limit", "volumes", "bytes", "size")
_TELLING = 8
"""Letters from which on the same words are the same message, and no chance."""


def evidence_rows(run: Mapping[str, Any], said: Sequence[str] = ()) -> list[tuple[str, Text]]:
    """Notes about what was brought back and, unless it succeeded, what it said last and what else is known.

    `said` is what its agent said at the end, the latest first. Nothing is told that the reason tells already.
    """
    result = run.get("result") or {}
    evidence, reason = result.get("evidence") or {}, one_line(str(result.get("reason") or ""))
    found = _rows("notes", _lines(_NOTES, evidence.get(_NOTES) or []))
    if run.get("state") in (SUCCEEDED, None):
        return found
    for name, value in evidence.items():
        if name not in (_NOTES, _OUTPUT):
            found += _rows(
                words(one_line(str(name))), [line for line in _lines(name, value) if not _told(line, reason)]
            )
    return found + _last(evidence.get(_OUTPUT), said, reason, by_agent=bool(run.get("agent")))


def _last(output: object, said: Sequence[str], reason: str, by_agent: bool) -> list[tuple[str, Text]]:
    for text in said:
        if not _told(one_line(text), reason):
            return _rows("last words", _ends(text))
    streams = output.values() if isinstance(output, Mapping) else [output or ""]
    lines = [line for text in streams for line in _ends(str(text))]
    if by_agent:
        # Agents write JSON for programs; what else is there was meant to be read.
        lines = [line for line in lines if not line.lstrip().startswith(("{", "["))]
    return _rows("last output", [line for line in lines if not _told(one_line(line), reason)][-_MOST_LINES:])


def _ends(text: str) -> list[str]:
    return [line for line in tidy(text).splitlines() if line.strip()][-_MOST_LINES:]


def _told(text: str, reason: str) -> bool:
    """Whether a reason has said as much already: reasons quote last lines and errors."""
    if reason.endswith(f": {text}"):
        return True
    return (len(text) >= _TELLING and text in reason) or (len(reason) >= _TELLING and text.startswith(reason))


def _lines(name: str, value: object) -> list[str]:
    if isinstance(value, Mapping):
        return [", ".join(f"{words(one_line(str(key)))} {_figure(str(key), each)}" for key, each in value.items())]
    if isinstance(value, list | tuple):
        return [_figure(name, each) for each in value]
    return [_figure(name, value)] if not isinstance(value, str) else _ends(value)


def _figure(name: str, value: object) -> str:
    """A value in units that people read, where its name says what it counts."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if name.rpartition("_")[2] in _SIZES:
            return size(value)
        if name.rpartition("_")[2] == "seconds":
            return took(value)
    return one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))


def _rows(name: str, lines: Sequence[str]) -> list[tuple[str, Text]]:
    from rich.text import Text

    return [("" if place else name, Text(line, style="dim")) for place, line in enumerate(lines)]
