"""Compare what a command printed with what a page shows."""

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


def ids(text: str) -> list[str]:
    return _ID.findall(text)


def plain(line: str, *, numbers_vary: bool = False) -> str:
    """Normalize a line: remove ids, times, durations, sizes and column widths, which vary."""
    line = _VARIES.sub("#", _ID.sub("ID", line))
    if numbers_vary:
        line = _NUMBER.sub("#", line)
    return " ".join(line.split())


def difference(
    shown: Sequence[str], printed: Sequence[str], *, numbers_vary: bool = False, prefix: bool = False
) -> str | None:
    """Return the first line of the page that was not printed, or None. With `prefix` more may follow."""
    expected = [plain(line, numbers_vary=numbers_vary) for line in shown if line.strip()]
    actual = [plain(line, numbers_vary=numbers_vary) for line in printed if line.strip()]
    if prefix:
        expected.append("…")
    # Positions in `actual` up to which the lines so far may reach.
    reached = {0}
    for number, line in enumerate(expected):
        if line == "…":
            reached = set(range(min(reached), len(actual) + 1))
            continue
        pattern = re.compile(".*".join(re.escape(part) for part in line.split("…")))
        following = {at + 1 for at in reached if at < len(actual) and pattern.fullmatch(actual[at])}
        if not following:
            nearest = actual[max(reached)] if max(reached) < len(actual) else "(nothing)"
            if number and expected[number - 1] == "…":
                nearest = "(no line like it)"
            return f"the page shows: {line}\nthis was printed: {nearest}"
        reached = following
    if len(actual) not in reached:
        return f"the page does not show: {actual[max(reached)]}"
    return None


def actual_ids(shown: Sequence[str], printed: Sequence[str]) -> dict[str, str]:
    """Map the page's ids to the ids printed in the same lines."""
    pairs: dict[str, str] = {}
    lines = [line for line in printed if line.strip()]
    for line in shown:
        if not (named := ids(line)):
            continue
        pattern = re.compile(".*".join(re.escape(part) for part in plain(line).split("…")))
        for at, candidate in enumerate(lines):
            if pattern.fullmatch(plain(candidate)):
                pairs |= {
                    ours: theirs for ours, theirs in zip(named, ids(candidate), strict=False) if ours not in pairs
                }
                del lines[at]
                break
    return pairs
