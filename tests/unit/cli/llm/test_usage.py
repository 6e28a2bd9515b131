"""Usage as a table and bars, with estimates marked."""

from __future__ import annotations

from typing import Any

import pytest

from paddock.cli.llm.usage import _daily_chart, _footnotes, _usage_cells, draw_bar


def item(**more: Any) -> dict[str, Any]:
    known = {"requests": 3, "errors": 0, "input": 1200, "output": 10, "cost": 0.5, "estimated": 0, "unpriced": 0}
    return {**known, **more}


@pytest.mark.parametrize(
    ("share", "drawn"), [(0.0, ""), (1.0, "████"), (0.5, "██"), (0.0001, "▏"), (0.28, "█▏"), (0.4, "█▋")]
)
def test_bars_are_as_long_as_their_share(share: float, drawn: str) -> None:
    assert draw_bar(share, 4) == drawn


def test_days_without_use_are_drawn_as_well() -> None:
    chart = _daily_chart([item(day="2026-01-30"), item(day="2026-02-02", cost=1.0)])
    assert [row[0] for row in chart] == ["2026-01-30", "2026-01-31", "2026-02-01", "2026-02-02"]
    assert [row[2] for row in chart] == ["$0.50", "$0", "$0", "$1.00"]
    assert len(chart[0][1]) * 2 == len(chart[3][1])


def test_tokens_are_drawn_where_nothing_cost_anything() -> None:
    chart = _daily_chart([item(day="2026-01-30", cost=0.0), item(day="2026-01-31", cost=0.0, input=100)])
    assert [row[2] for row in chart] == ["1.2k", "110"]


def test_a_long_time_is_drawn_without_its_empty_days() -> None:
    assert len(_daily_chart([item(day="2020-01-01"), item(day="2026-01-01")])) == 2


def test_estimates_and_unknown_prices_are_marked_and_explained() -> None:
    assert _usage_cells(item()) == ["3", "", "1.2k", "10", "$0.50"]
    assert _usage_cells(item(estimated=1)) == ["3", "", "~1.2k", "~10", "~$0.50"]
    assert _usage_cells(item(unpriced=1))[-1] == "≥$0.50"
    assert _usage_cells(item(unpriced=3, cost=0.0))[-1] == "unknown"
    assert _usage_cells(item(unpriced=1, cost=1e-6))[-1] == "<$0.0001"
    assert _footnotes(item()) == []
    _, guessed, unpriced = _footnotes(item(estimated=2, unpriced=1))
    assert guessed.startswith("~ tokens of 2 requests are estimated")
    assert unpriced.startswith("≥ no price is configured for 1 request")
