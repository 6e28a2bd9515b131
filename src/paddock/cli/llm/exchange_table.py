"""Lays out exchanges as table rows, for a complete list or for a live stream."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from paddock.cli.llm.exchange_text import (
    format_clock_time,
    format_exchange_outcome,
    format_exchange_source,
    format_requested_model,
    join_text_lines,
)
from paddock.cli.output.errors import supports_colour
from paddock.cli.output.formatting import format_cost, format_count, format_latency, parse_time, sanitize_text

EXCHANGE_COLUMNS = ("NO", "TIME", "FROM", "MODEL", "IN", "OUT", "COST", "TOOK", "OUTCOME")
_RIGHT_ALIGNED = frozenset({"NO", "IN", "OUT", "COST", "TOOK"})
_MODEL, _OUTCOME, _FROM = (
    EXCHANGE_COLUMNS.index("MODEL"),
    EXCHANGE_COLUMNS.index("OUTCOME"),
    EXCHANGE_COLUMNS.index("FROM"),
)
_GAP = 2
_MIN_OUTCOME_WIDTH = len("ok (script)")
_DEFAULT_WIDTHS = {
    "NO": 4,
    "TIME": 8,
    "FROM": 12,
    "MODEL": 24,
    "IN": 5,
    "OUT": 5,
    "COST": 8,
    "TOOK": 6,
    "OUTCOME": 12,
}
"""Initial widths for a live stream; columns only ever grow."""


def exchange_row_cells(exchange: dict[str, Any], now: datetime | None = None) -> list[str]:
    """Return the cells of an exchange's row."""
    usage = exchange.get("usage") or {}
    guess = "~" if exchange.get("estimated") else ""
    return [
        str(exchange.get("number", "")),
        format_clock_time(parse_time(exchange.get("at")), now or datetime.now(UTC)),
        format_exchange_source(exchange),
        format_requested_model(exchange),
        guess + format_count(usage.get("input")),
        guess + format_count(usage.get("output")),
        format_cost(exchange.get("cost")),
        format_latency(exchange.get("total")),
        join_text_lines(format_exchange_outcome(exchange)),
    ]


class ExchangeTableLayout:
    """Column widths; the model and outcome columns shrink to fit the terminal."""

    def __init__(self, rows: Sequence[Sequence[str]] | None, width: int | None = None) -> None:
        from rich.cells import cell_len

        self._grows = rows is None
        if rows is None:
            self.widths = list(_DEFAULT_WIDTHS.values())
        else:
            self.widths = [
                max(cell_len(cell) for cell in column) for column in zip(EXCHANGE_COLUMNS, *rows, strict=True)
            ]
            if not any(row[_FROM] for row in rows):
                self.widths[_FROM] = 0
        self.width = width or (shutil.get_terminal_size().columns if sys.stdout.isatty() else None)
        if self.width is not None:
            self._narrow(self.width)

    def _narrow(self, width: int) -> None:
        fixed = [each for index, each in enumerate(self.widths) if index not in (_MODEL, _OUTCOME) and each]
        available = max(16, width - sum(fixed) - _GAP * (len(fixed) + 1))
        model, outcome = self.widths[_MODEL], self.widths[_OUTCOME]
        if model + outcome > available:
            # Split the space evenly; a column gets what the other does not need.
            outcome = min(outcome, max(available // 2, available - model, min(_MIN_OUTCOME_WIDTH, available - 8)))
            model = available - outcome
        self.widths[_MODEL], self.widths[_OUTCOME] = model, available - model

    def _widen(self, needed: Sequence[int]) -> None:
        """Widen columns for a new row. On a terminal, the model column shrinks in exchange."""
        for index, need in enumerate(needed):
            more = need - self.widths[index]
            if more <= 0 or index == _OUTCOME or (index == _MODEL and self.width is not None):
                continue
            self.widths[index] = need
            if self.width is not None:
                taken = min(more, max(0, self.widths[_MODEL] - 8))
                self.widths[_MODEL] -= taken
                self.widths[_OUTCOME] = max(1, self.widths[_OUTCOME] - (more - taken))

    def format_row(self, row: Sequence[str], *, bold: bool = False) -> str:
        """Return a row as a line of text."""
        from rich.cells import cell_len, set_cell_size

        if self._grows:
            self._widen([cell_len(sanitize_text(cell)) for cell in row])
        shown: list[str] = []
        for name, cell, width in zip(EXCHANGE_COLUMNS, row, self.widths, strict=True):
            if not width:
                continue
            text = sanitize_text(cell)
            if self.width is not None and name in ("MODEL", "OUTCOME") and cell_len(text) > width:
                requested = text.partition(" → ")[0] if name == "MODEL" else text
                text = requested if cell_len(requested) <= width else f"{set_cell_size(text, width - 1).rstrip()}…"
            space = " " * max(0, width - cell_len(text))
            text = space + text if name in _RIGHT_ALIGNED else text + space
            shown.append(_coloured(text) if name == "OUTCOME" and not bold else text)
        line = (" " * _GAP).join(shown).rstrip()
        return f"\x1b[1m{line}\x1b[0m" if bold and supports_colour(sys.stdout) else line


def _coloured(text: str) -> str:
    if not supports_colour(sys.stdout):
        return text
    word = text.split(" ")[0].split(":")[0]
    colour = {"ok": "32", "failed": "31", "cut": "31", "refused": "33", "client": "33"}.get(word)
    return f"\x1b[{colour}m{text.rstrip()}\x1b[0m" if colour else text
