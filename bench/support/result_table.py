"""Table of benchmark results with their bars, and timers."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path


class ResultTable:
    """Collects figures and prints them with their bars."""

    def __init__(self) -> None:
        self.rows: list[dict[str, object]] = []

    def add(self, what: str, figure: float, unit: str, *, against: str = "", ratio: float = 0.0, bar: str = "") -> None:
        self.rows.append({"what": what, "figure": figure, "unit": unit, "against": against, "ratio": ratio, "bar": bar})

    def check_bar(self, what: str, value: float, bound: float, *, at_least: bool = False) -> None:
        row = next(row for row in self.rows if row["what"] == what)
        row["holds"] = value >= bound if at_least else value <= bound

    def print_table(self) -> None:
        print(f"\n{'what':<46}{'figure':>12}  {'against':<34}{'bar':<26}holds")
        for row in self.rows:
            figure = f"{row['figure']:.1f} {row['unit']}"
            against = f"{row['ratio']:.3f} x {row['against']}" if row["against"] else ""
            holds = {True: "yes", False: "NO", None: ""}[row.get("holds")]  # type: ignore[index]
            print(f"{row['what']:<46}{figure:>12}  {against:<34}{row['bar']:<26}{holds}")

    @property
    def all_bars_met(self) -> bool:
        return all(row.get("holds") is not False for row in self.rows)

    def report(self, json_file: Path | None) -> int:
        """Print the table, optionally write it to a file, and return the exit code."""
        self.print_table()
        if json_file:
            json_file.write_text(json.dumps(self.rows, indent=2))
        return 0 if self.all_bars_met else 1


async def measure_awaitable(work: Awaitable[object]) -> float:
    started = time.perf_counter()
    await work
    return time.perf_counter() - started


def measure_call(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
