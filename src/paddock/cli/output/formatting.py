"""Formats times, sizes, costs and untrusted text for the terminal."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    pass


def sanitize_text(text: str) -> str:
    """Replace control characters, so that untrusted text cannot control the terminal."""
    return "".join(
        character if character.isprintable() or character == "\n" else "\N{REPLACEMENT CHARACTER}" for character in text
    )


def sanitize_lines(text: str) -> str:
    """Replace control characters of multi-line text, keeping tabs and normalizing line ends."""
    return "\t".join(sanitize_text(part) for part in text.replace("\r\n", "\n").removesuffix("\r").split("\t"))


def parse_time(text: str | None) -> datetime | None:
    """Parse a time in the server's format."""
    return datetime.fromisoformat(text) if text else None


def format_age(when: datetime | None, now: datetime | None = None) -> str:
    """Format the time since `when`: `42s`, `5m`, `3h`, `2d`."""
    return "" if when is None else format_elapsed(((now or datetime.now(UTC)) - when).total_seconds())


def format_time_left(when: datetime | None, now: datetime | None = None) -> str:
    """Format the time until `when`, or `never` if it is None."""
    if when is None:
        return "never"
    left = (when - (now or datetime.now(UTC))).total_seconds()
    # Rounded up, so that a lifetime of one hour is not shown as 59 minutes right after the start.
    return "now" if left <= 0 else f"in {format_elapsed(math.ceil(left / 60) * 60 if left > 120 else math.ceil(left))}"


def format_build_step(progress: Mapping[str, Any], step: str) -> str:
    """Format the progress of an image build, such as `apt, step 2 of 6, 40%`."""
    number, count, fraction = progress.get("step_number"), progress.get("step_count"), progress.get("fraction")
    numbered = f", step {number} of {count}" if number and count else ""
    return f"{step}{numbered}" + (f", {float(fraction):.0%}" if fraction else "")


def format_elapsed(seconds: float) -> str:
    """Format a duration in whole days, or in the largest unit of which there are at least two: `119s`, `2m`."""
    whole = max(0, int(seconds))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if whole >= 2 * size or (whole >= size and unit == "d"):
            return f"{whole // size}{unit}"
    return f"{whole}s"


def format_size(count: float | None) -> str:
    """Format a number of bytes: `1.4 GiB`."""
    if count is None:
        return ""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def format_pairs(mapping: Mapping[str, Any] | None) -> str:
    """Format a mapping as `a=1 b=2`, nested mappings as `m.k=3`."""
    shown: list[str] = []
    for name, value in (mapping or {}).items():
        if isinstance(value, Mapping):
            shown.append(format_pairs({f"{name}.{key}": inner for key, inner in value.items()}))
        else:
            shown.append(f"{name}={value if isinstance(value, str) else json.dumps(value)}")
    return " ".join(shown)


def format_latency(seconds: float | None) -> str:
    """Format seconds as `12 ms`, `1.4 s` or `95 s`."""
    if seconds is None:
        return ""
    if seconds < 0.9995:
        return f"{max(0.0, seconds) * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 99.95 else f"{seconds:.0f} s"


def format_count(number: int | None) -> str:
    """Format a number as `950`, `1.2k`, `34k` or `1.5M`."""
    if number is None:
        return ""
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if number >= size * 0.9995:
            share = number / size
            return f"{share:.1f}{unit}" if share < 9.95 else f"{share:.0f}{unit}"
    return str(number)


def format_cost(dollars: float | None) -> str:
    """Format US dollars, with more digits for small amounts; empty if unknown."""
    if dollars is None:
        return ""
    if dollars == 0:
        return "$0"
    if dollars < 0.000_05:
        return "<$0.0001"
    return f"${dollars:.4f}" if dollars < 0.1 else f"${dollars:,.2f}"
