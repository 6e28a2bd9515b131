"""Exchanges as rows that line up, whether all are known or they come one by one."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from paddock.cli.failure import wants_colour
from paddock.cli.llm_words import box_of, clock, count, first_line, latency, model_of, money, outcome_of
from paddock.cli.output import moment, plain

COLUMNS = ("NO", "TIME", "SANDBOX", "MODEL", "IN", "OUT", "COST", "TOOK", "OUTCOME")
_RIGHT = frozenset({"NO", "IN", "OUT", "COST", "TOOK"})
_MODEL, _OUTCOME, _SANDBOX = COLUMNS.index("MODEL"), COLUMNS.index("OUTCOME"), COLUMNS.index("SANDBOX")
_GAP = 2
_LEAST = len("ok (script)")
_UNSEEN = {"NO": 4, "TIME": 8, "SANDBOX": 8, "MODEL": 24, "IN": 5, "OUT": 5, "COST": 8, "TOOK": 6, "OUTCOME": 12}
"""Widths for rows that are still to come, enough for nearly all of them; a column that was wider once stays so."""


def cells(exchange: dict[str, Any], now: datetime | None = None) -> list[str]:
    """What each column says of an exchange."""
    usage = exchange.get("usage") or {}
    guess = "~" if exchange.get("estimated") else ""
    return [
        str(exchange.get("number", "")),
        clock(moment(exchange.get("at")), now or datetime.now(UTC)),
        box_of(exchange),
        model_of(exchange),
        guess + count(usage.get("input")),
        guess + count(usage.get("output")),
        money(exchange.get("cost")),
        latency(exchange.get("total")),
        first_line(outcome_of(exchange)),
    ]


class Layout:
    """Widths of the columns. The model's and the outcome's give way where there is no room."""

    def __init__(self, rows: Sequence[Sequence[str]] | None, width: int | None = None) -> None:
        from rich.cells import cell_len

        self._grows = rows is None
        if rows is None:
            self.widths = list(_UNSEEN.values())
        else:
            self.widths = [max(cell_len(cell) for cell in column) for column in zip(COLUMNS, *rows, strict=True)]
            if not any(row[_SANDBOX] for row in rows):
                self.widths[_SANDBOX] = 0
        self.width = width or (shutil.get_terminal_size().columns if sys.stdout.isatty() else None)
        if self.width is not None:
            self._narrow(self.width)

    def _narrow(self, width: int) -> None:
        fixed = [each for place, each in enumerate(self.widths) if place not in (_MODEL, _OUTCOME) and each]
        room = max(16, width - sum(fixed) - _GAP * (len(fixed) + 1))
        model, outcome = self.widths[_MODEL], self.widths[_OUTCOME]
        if model + outcome > room:
            # Half each, and what one does not need is the other's; the first words of the outcome say most.
            outcome = min(outcome, max(room // 2, room - model, min(_LEAST, room - 8)))
            model = room - outcome
        self.widths[_MODEL], self.widths[_OUTCOME] = model, room - model

    def _widen(self, needed: Sequence[int]) -> None:
        """Make room for a row that came later. On a terminal, the model's column gives what it can."""
        for place, need in enumerate(needed):
            more = need - self.widths[place]
            if more <= 0 or place == _OUTCOME or (place == _MODEL and self.width is not None):
                continue
            self.widths[place] = need
            if self.width is not None:
                given = min(more, max(0, self.widths[_MODEL] - 8))
                self.widths[_MODEL] -= given
                self.widths[_OUTCOME] = max(1, self.widths[_OUTCOME] - (more - given))

    def line(self, row: Sequence[str], *, bold: bool = False) -> str:
        """One row as a line of text."""
        from rich.cells import cell_len, set_cell_size

        if self._grows:
            self._widen([cell_len(plain(cell)) for cell in row])
        shown: list[str] = []
        for name, cell, width in zip(COLUMNS, row, self.widths, strict=True):
            if not width:
                continue
            text = plain(cell)
            if self.width is not None and name in ("MODEL", "OUTCOME") and cell_len(text) > width:
                asked = text.partition(" → ")[0] if name == "MODEL" else text
                text = asked if cell_len(asked) <= width else f"{set_cell_size(text, width - 1).rstrip()}…"
            space = " " * max(0, width - cell_len(text))
            text = space + text if name in _RIGHT else text + space
            shown.append(_coloured(text) if name == "OUTCOME" and not bold else text)
        line = (" " * _GAP).join(shown).rstrip()
        return f"\x1b[1m{line}\x1b[0m" if bold and wants_colour(sys.stdout) else line


def _coloured(text: str) -> str:
    if not wants_colour(sys.stdout):
        return text
    word = text.split(" ")[0].split(":")[0]
    colour = {"ok": "32", "failed": "31", "cut": "31", "refused": "33", "client": "33"}.get(word)
    return f"\x1b[{colour}m{text.rstrip()}\x1b[0m" if colour else text
