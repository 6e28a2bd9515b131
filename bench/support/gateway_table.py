"""Table of results by measurement and gateway, with their bars."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field


def _format_figure(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 1000 else f"{figure:.3f}" if figure < 10 else f"{figure:.1f}"


@dataclass
class GatewayTable:
    """Results of several rounds by measurement and gateway, with the required bars."""

    units: dict[str, str] = field(default_factory=dict)
    rounds: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    bars: list[dict[str, object]] = field(default_factory=list)

    def add(self, measurement: str, gateway: str, figure: float, unit: str = "") -> None:
        self.units[measurement] = unit
        self.rounds.setdefault(measurement, {}).setdefault(gateway, []).append(figure)

    def median(self, measurement: str, gateway: str) -> float | None:
        """Return the median, or None if it was not measured."""
        figures = self.rounds.get(measurement, {}).get(gateway)
        return statistics.median(figures) if figures else None

    def median_overhead(self, measurement: str, gateway: str, floor: str = "direct") -> float | None:
        """Return the median difference from the floor of the same round."""
        figures, floors = (self.rounds.get(measurement, {}).get(name) for name in (gateway, floor))
        if not figures or not floors:
            return None
        return statistics.median(each - least for each, least in zip(figures, floors, strict=True))

    def median_ratio(self, measurement: str, gateway: str, peer: str) -> float | None:
        ours, theirs = self.median(measurement, gateway), self.median(measurement, peer)
        return None if ours is None or not theirs else ours / theirs

    def check_bar(
        self, measurement: str, value: float | None, unit: str, bound: float, *, at_least: bool = False
    ) -> None:
        """Compare a figure with its bar; skip figures that were not measured."""
        if value is None:
            return
        holds = value >= bound if at_least else value <= bound
        bar = f"{'>=' if at_least else '<='} {bound:g}{unit}"
        self.bars.append({"what": measurement, "value": value, "unit": unit, "bar": bar, "holds": holds})

    @property
    def all_bars_met(self) -> bool:
        return all(bar["holds"] for bar in self.bars)

    def print_table(self, order: tuple[str, ...], less_direct: tuple[str, ...] = ()) -> None:
        """Print medians by gateway, overheads against direct requests, and the bars."""
        names = [name for name in order if any(name in row for row in self.rounds.values())]

        def line(title: str, figures: Iterable[float | None]) -> None:
            cells = ("" if figure is None else _format_figure(figure) for figure in figures)
            print(f"{title:<46}" + "".join(f"{cell:>16}" for cell in cells))

        if names:
            print(f"\n{'medians':<46}" + "".join(f"{name:>16}" for name in names))
        for measurement, unit in self.units.items():
            line(f"{measurement}, {unit}", (self.median(measurement, name) for name in names))
            if measurement in less_direct and "direct" in self.rounds[measurement]:
                line(
                    "  added", (None if name == "direct" else self.median_overhead(measurement, name) for name in names)
                )
        if self.bars:
            print(f"\n{'bars':<62}{'figure':>14}  {'bar':<14}holds")
        for bar in self.bars:
            figure = f"{bar['value']:,.3f}{bar['unit']}"
            print(f"{bar['what']:<62}{figure:>14}  {bar['bar']:<14}{'yes' if bar['holds'] else 'NO'}")

    def to_json(self) -> str:
        figures = [
            {
                "what": measurement,
                "unit": self.units[measurement],
                "who": gateway,
                "median": statistics.median(values),
                "rounds": values,
            }
            for measurement, row in self.rounds.items()
            for gateway, values in row.items()
        ]
        return json.dumps({"figures": figures, "bars": self.bars}, indent=2)
