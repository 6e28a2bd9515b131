"""Standard output of commands: tables and facts on a terminal, JSON for programs."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from paddock.cli.output.formatting import sanitize_lines, sanitize_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_UNLIMITED_WIDTH = 100_000
"""Columns when writing to a pipe: lines are never cut."""
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


class CommandOutput:
    """Prints a command's result as text, or as JSON if `as_json`."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    @property
    def is_interactive(self) -> bool:
        """Return whether text is written to a terminal."""
        return not self.as_json and sys.stdout.isatty()

    def print_if_interactive(self, text: str) -> None:
        """Print a line on a terminal only, for example that a list is empty."""
        if self.is_interactive:
            self.print_line(text)

    def print_line(self, text: str = "") -> None:
        sys.stdout.write(f"{sanitize_lines(text)}\n")
        sys.stdout.flush()

    def print_text(self, text: str) -> None:
        """Print text without adding a newline."""
        sys.stdout.write(sanitize_text(text.replace("\t", "    ").replace("\r\n", "\n")))
        sys.stdout.flush()

    def print_json(self, document: Any) -> None:
        """Print a command's whole result as one indented JSON document."""
        sys.stdout.write(_to_json(document, indent=2) + "\n")

    def print_json_line(self, document: Any) -> None:
        """Print one document of a stream as a line of JSON."""
        sys.stdout.write(_to_json(document) + "\n")
        sys.stdout.flush()

    def print_table(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[str]],
        *,
        wraps: Sequence[str] = (),
        right: Sequence[str] = (),
    ) -> None:
        """Print aligned columns; columns in `right` are right-aligned.

        On a terminal, columns in `wraps` are folded; without any, the last column is cut to fit.
        """
        from rich.cells import cell_len
        from rich.table import Table
        from rich.text import Text

        console = self._open_console()
        lines = [[Text(sanitize_text(cell), style=_STYLES.get(cell, "")) for cell in row] for row in rows]
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
        self._print_table_lines(console, table)

    def print_facts(self, facts: Iterable[tuple[str, str]]) -> None:
        """Print names and values, one pair per line."""
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for name, value in facts:
            table.add_row(Text(name, style="bold"), Text(sanitize_text(value), style=_STYLES.get(value, "")))
        self._print_table_lines(self._open_console(), table)

    def _open_console(self) -> Console:
        from rich.console import Console

        width = None if sys.stdout.isatty() else _UNLIMITED_WIDTH
        return Console(file=sys.stdout, width=width, highlight=False, markup=False, emoji=False)

    def _print_table_lines(self, console: Console, table: Table) -> None:
        with console.capture() as capture:
            console.print(table)
        sys.stdout.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))


def _to_json(document: Any, indent: int | None = None) -> str:
    """Encode as JSON, escaping the C1 control characters that `json` leaves and terminals interpret."""
    text = json.dumps(document, indent=indent, ensure_ascii=False, default=str)
    return re.sub(r"[\x7f-\x9f]", lambda found: f"\\u{ord(found[0]):04x}", text)
