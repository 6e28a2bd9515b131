"""What commands print: tables and facts for people, JSON for programs."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_WIDE = 100_000
"""Columns when nobody looks: what reads a pipe wants whole lines."""
_STYLES = {
    "Running": "green",
    "Ready": "green",
    "ready": "green",
    "failing": "red",
    "key refused": "red",
    "Paused": "yellow",
    "Pending": "cyan",
    "Creating": "cyan",
    "Failed": "red",
    "Terminated": "dim",
    "queued": "cyan",
    "succeeded": "green",
    "failed": "red",
    "timed out": "red",
    "cancelled": "yellow",
    "lost": "red",
    "over budget": "red",
    "yes": "green",
    "no": "yellow",
    "✓": "green",
    "✗": "red",
    "!": "yellow",
}


class Output:
    """Standard output, for people or for programs."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    @property
    def for_people(self) -> bool:
        """Whether someone looks at it."""
        return not self.as_json and sys.stdout.isatty()

    def nothing(self, text: str) -> None:
        """Say on a terminal that a list is empty; a program gets no lines."""
        if self.for_people:
            self.line(text)

    def line(self, text: str = "") -> None:
        sys.stdout.write(f"{readable(text)}\n")
        sys.stdout.flush()

    def write(self, text: str) -> None:
        """Text as it comes, with no end of line of its own."""
        sys.stdout.write(plain(text.replace("\t", "    ").replace("\r\n", "\n")))
        sys.stdout.flush()

    def document(self, document: Any) -> None:
        """One JSON document, the whole answer of a command."""
        sys.stdout.write(_json(document, indent=2) + "\n")

    def event(self, document: Any) -> None:
        """One line of a stream of JSON documents."""
        sys.stdout.write(_json(document) + "\n")
        sys.stdout.flush()

    def table(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[str]],
        *,
        wraps: Sequence[str] = (),
        right: Sequence[str] = (),
    ) -> None:
        """Aligned columns, those of `right` to the right.

        On a terminal the last one is cut to fit, and the columns of `wraps` are folded.
        """
        from rich.cells import cell_len
        from rich.table import Table
        from rich.text import Text

        console = self._console()
        lines = [[Text(plain(cell), style=_STYLES.get(cell, "")) for cell in row] for row in rows]
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        for name in columns:
            folded = name in wraps
            side: Literal["left", "right"] = "right" if name in right else "left"
            table.add_column(name, no_wrap=not folded, overflow="fold" if folded else "ellipsis", justify=side)
        if not wraps:
            taken = sum(
                max(map(cell_len, [name, *(line[i].plain for line in lines)])) + 2
                for i, name in enumerate(columns[:-1])
            )
            for line in lines:
                line[-1].truncate(max(console.width - taken, len(columns[-1])), overflow="ellipsis")
        for line in lines:
            table.add_row(*line)
        self._print(console, table)

    def facts(self, facts: Iterable[tuple[str, str]]) -> None:
        """Names and values, one pair a line."""
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for name, value in facts:
            table.add_row(Text(name, style="bold"), Text(plain(value), style=_STYLES.get(value, "")))
        self._print(self._console(), table)

    def _console(self) -> Console:
        from rich.console import Console

        width = None if sys.stdout.isatty() else _WIDE
        return Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False)

    def _print(self, console: Console, table: Table) -> None:
        with console.capture() as capture:
            console.print(table)
        sys.stdout.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))


def plain(text: str) -> str:
    """Text that cannot steer a terminal: what comes from a box or another user is shown, never obeyed."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "\N{REPLACEMENT CHARACTER}" for letter in text)


def readable(text: str) -> str:
    """As `plain`, for text of many lines: tabs stay, and the ends of lines are ours, also where Windows wrote them."""
    return "\t".join(plain(part) for part in text.replace("\r\n", "\n").removesuffix("\r").split("\t"))


def _json(document: Any, indent: int | None = None) -> str:
    """JSON leaves some control characters as they are, and terminals obey those too."""
    text = json.dumps(document, indent=indent, ensure_ascii=False, default=str)
    return re.sub(r"[\x7f-\x9f]", lambda found: f"\\u{ord(found[0]):04x}", text)


def moment(text: str | None) -> datetime | None:
    """A time as the server writes it."""
    return datetime.fromisoformat(text) if text else None


def ago(when: datetime | None, now: datetime | None = None) -> str:
    """How long something has been there: `42s`, `5m`, `3h`, `2d`."""
    return "" if when is None else span(((now or datetime.now(UTC)) - when).total_seconds())


def until(when: datetime | None, now: datetime | None = None) -> str:
    """How long something still has, or `never` when it has no end."""
    if when is None:
        return "never"
    left = (when - (now or datetime.now(UTC))).total_seconds()
    # Rounded up, so that what was asked to live for an hour does not have 59 minutes at once.
    return "now" if left <= 0 else f"in {span(math.ceil(left / 60) * 60 if left > 120 else math.ceil(left))}"


def span(seconds: float) -> str:
    """A duration in its largest whole unit, of which there are two or more where a smaller one tells more."""
    whole = max(0, int(seconds))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if whole >= 2 * size or (whole >= size and unit == "d"):
            return f"{whole // size}{unit}"
    return f"{whole}s"


def size(count: float | None) -> str:
    """Bytes as people read them: `1.4 GiB`."""
    if count is None:
        return ""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def pairs(mapping: Mapping[str, Any] | None) -> str:
    """`a=1 b=2`, and `m.k=3` for what is inside."""
    shown: list[str] = []
    for name, value in (mapping or {}).items():
        if isinstance(value, Mapping):
            shown.append(pairs({f"{name}.{key}": inner for key, inner in value.items()}))
        else:
            shown.append(f"{name}={value if isinstance(value, str) else json.dumps(value)}")
    return " ".join(shown)
