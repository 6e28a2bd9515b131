"""Rows of exchanges line up and fit, whatever models are called."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from rich.cells import cell_len

from paddock.cli.llm_rows import COLUMNS, Layout, cells

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
LONG = "a-model-with-a-name-that-somebody-made-up-for-a-deployment-in-one-region-2026-01-31"


def exchange(number: int, **more: Any) -> dict[str, Any]:
    known = {"number": number, "at": NOW.isoformat(), "model": "fast", "provider": "openai", "providerModel": "gpt-5"}
    usage = {"input": 1200, "output": 34}
    return {**known, "outcome": "ok", "status": 200, "total": 1.2, "cost": 0.01, "usage": usage, **more}


ALL = [
    exchange(1),
    exchange(22, sandbox="sb-0123456789abcdef", model=LONG),
    exchange(333, model="模型的名字非常非常非常非常非常非常长", providerModel="千问"),
    exchange(4, outcome="failed", status=502, error="the upstream\nwas away\x1b[2J", usage=None, cost=None),
]


@pytest.mark.parametrize("width", [80, 120])
def test_rows_fit_the_terminal_and_line_up(width: int) -> None:
    rows = [cells(each, NOW) for each in ALL]
    layout = Layout(rows, width)
    lines = [layout.line(row) for row in (COLUMNS, *rows)]
    assert max(map(cell_len, lines)) <= width
    # Everything before the last column takes the same room in each row.
    before = [
        cell_len(line[: line.rindex(word)])
        for line, word in zip(lines, ("OUTCOME", "ok", "ok", "ok", "failed"), strict=True)
    ]
    assert len(set(before)) == 1
    assert "0123456" in lines[2] and "a-model" in lines[2]


def test_who_was_asked_gives_way_before_what_was_asked_for() -> None:
    row = cells(exchange(1, providerModel="x" * 60), NOW)
    assert "  fast  " in Layout([row], 80).line(row)
    assert "fast → openai/xxx" in Layout([row], 160).line(row)


def test_rows_that_come_one_by_one_fit_too() -> None:
    layout = Layout(None, 80)
    assert max(cell_len(layout.line(cells(each, NOW))) for each in ALL) <= 80


@pytest.mark.parametrize("width", [80, 120, None])
def test_rows_that_come_one_by_one_do_not_shift(width: int | None) -> None:
    """A column that was wider once stays so."""
    layout = Layout(None, width)
    wide = exchange(123_456, cost=1234.5, at="2026-01-30T12:00:00Z", model=LONG)
    first = layout.line(cells(wide, NOW))
    lines = [first, *(layout.line(cells(each, NOW)) for each in (exchange(1), exchange(2, cost=0.000_01)))]
    assert len({cell_len(line[: line.rindex("ok")]) for line in lines}) == 1
    assert width is None or max(map(cell_len, lines)) <= width


def test_small_costs_do_not_shift_what_comes() -> None:
    layout = Layout(None, 80)
    rows = [cells(exchange(1, cost=cost), NOW) for cost in (0.01, 0.000_01, 99.5, None)]
    heads = layout.line(COLUMNS)
    assert {layout.line(row).index("ok") for row in rows} == {heads.index("OUTCOME")}


def test_what_reads_a_pipe_gets_whole_names() -> None:
    rows = [cells(each, NOW) for each in ALL]
    assert LONG in Layout(rows).line(rows[1])
    assert LONG in Layout(None).line(rows[1])


def test_the_column_of_sandboxes_is_left_out_where_there_are_none() -> None:
    rows = [cells(exchange(1), NOW)]
    assert "SANDBOX" not in Layout(rows, 80).line(COLUMNS)


def test_what_a_provider_says_cannot_steer_the_terminal() -> None:
    rows = [cells(each, NOW) for each in ALL]
    lines = "".join(Layout(rows, 120).line(row) for row in rows)
    assert all(letter.isprintable() for letter in lines)
