"""Compare the output of a command with the output on a page."""

from __future__ import annotations

import re
from collections.abc import Sequence

_ID = re.compile(
    r"\b(?:sb|ses|run|snap|pool|key)-[0-9a-f]{10,}\b|\b(?:ex|script|call)-[0-9a-f]{5,}\b|\bmsg_[0-9a-f]+\b"
)
_VARIES = re.compile(
    r"\d{4}-\d\d-\d\dT[\d:.]+Z"  # a time with its date
    r"|\b\d\d-\d\d \d\d:\d\d(?::\d\d)?|\b\d\d:\d\d(?::\d\d)?(?: UTC)?"
    r"|(?<=seconds=)[\d.]+"
    r"|\b\d[\d.,]*\s?(?:ms|s|m|h|KiB|MiB|GiB|kB)\b"
)
_NUMBER = re.compile(r"~?\d[\d.,]*k?")


def find_ids(text: str) -> list[str]:
    return _ID.findall(text)


def normalize_line(line: str, *, numbers_vary: bool = False) -> str:
    """Normalize a line: remove ids, times, durations, sizes and column widths, which vary."""
    line = _VARIES.sub("#", _ID.sub("ID", line))
    if numbers_vary:
        line = _NUMBER.sub("#", line)
    return " ".join(line.split())


def find_difference(
    shown: Sequence[str], printed: Sequence[str], *, numbers_vary: bool = False, prefix: bool = False
) -> str | None:
    """Return the first line of the page that was not printed, or None. With `prefix` more may follow."""
    expected = [normalize_line(line, numbers_vary=numbers_vary) for line in shown if line.strip()]
    actual = [normalize_line(line, numbers_vary=numbers_vary) for line in printed if line.strip()]
    if prefix:
        expected.append("…")
    # Positions in `actual` up to which the lines so far may reach.
    positions = {0}
    for number, line in enumerate(expected):
        if line == "…":
            positions = set(range(min(positions), len(actual) + 1))
            continue
        pattern = re.compile(".*".join(re.escape(part) for part in line.split("…")))
        next_positions = {
            position + 1 for position in positions if position < len(actual) and pattern.fullmatch(actual[position])
        }
        if not next_positions:
            nearest = actual[max(positions)] if max(positions) < len(actual) else "(nothing)"
            if number and expected[number - 1] == "…":
                nearest = "(no line like it)"
            return f"the page shows: {line}\nthis was printed: {nearest}"
        positions = next_positions
    if len(actual) not in positions:
        return f"the page does not show: {actual[max(positions)]}"
    return None


def map_ids(shown: Sequence[str], printed: Sequence[str]) -> dict[str, str]:
    """Map the page's ids to the ids printed in the same lines."""
    pairs: dict[str, str] = {}
    lines = [line for line in printed if line.strip()]
    for line in shown:
        if not (page_ids := find_ids(line)):
            continue
        pattern = re.compile(".*".join(re.escape(part) for part in normalize_line(line).split("…")))
        for position, candidate in enumerate(lines):
            if pattern.fullmatch(normalize_line(candidate)):
                pairs |= {
                    page_id: printed_id
                    for page_id, printed_id in zip(page_ids, find_ids(candidate), strict=False)
                    if page_id not in pairs
                }
                del lines[position]
                break
    return pairs
