"""Rows of exchanges are aligned and fit the terminal, also with long model names."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from rich.cells import cell_len

from paddock.cli.llm.exchange_table import EXCHANGE_COLUMNS, ExchangeTableLayout, exchange_row_cells

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
    rows = [exchange_row_cells(each, NOW) for each in ALL]
    layout = ExchangeTableLayout(rows, width)
    lines = [layout.format_row(row) for row in (EXCHANGE_COLUMNS, *rows)]
    assert max(map(cell_len, lines)) <= width
    # Everything before the last column takes the same room in each row.
    before = [
        cell_len(line[: line.rindex(word)])
        for line, word in zip(lines, ("OUTCOME", "ok", "ok", "ok", "failed"), strict=True)
    ]
    assert len(set(before)) == 1
    assert "sandbox 0123" in lines[2] and "a-model" in lines[2]


def test_the_provider_model_is_cut_before_the_requested_model() -> None:
    row = exchange_row_cells(exchange(1, providerModel="x" * 60), NOW)
    assert "  fast  " in ExchangeTableLayout([row], 80).format_row(row)
    assert "fast → openai/xxx" in ExchangeTableLayout([row], 160).format_row(row)


def test_streamed_rows_fit_the_terminal() -> None:
    layout = ExchangeTableLayout(None, 80)
    assert max(cell_len(layout.format_row(exchange_row_cells(each, NOW))) for each in ALL) <= 80


@pytest.mark.parametrize("width", [80, 120, None])
def test_streamed_rows_stay_aligned(width: int | None) -> None:
    """A column that was wider once stays so."""
    layout = ExchangeTableLayout(None, width)
    wide = exchange(123_456, cost=1234.5, at="2026-01-30T12:00:00Z", model=LONG)
    first = layout.format_row(exchange_row_cells(wide, NOW))
    lines = [
        first,
        *(layout.format_row(exchange_row_cells(each, NOW)) for each in (exchange(1), exchange(2, cost=0.000_01))),
    ]
    assert len({cell_len(line[: line.rindex("ok")]) for line in lines}) == 1
    assert width is None or max(map(cell_len, lines)) <= width


def test_small_costs_keep_rows_aligned() -> None:
    layout = ExchangeTableLayout(None, 80)
    rows = [exchange_row_cells(exchange(1, cost=cost), NOW) for cost in (0.01, 0.000_01, 99.5, None)]
    heads = layout.format_row(EXCHANGE_COLUMNS)
    assert {layout.format_row(row).index("ok") for row in rows} == {heads.index("OUTCOME")}


def test_names_are_not_cut_in_a_pipe() -> None:
    rows = [exchange_row_cells(each, NOW) for each in ALL]
    assert LONG in ExchangeTableLayout(rows).format_row(rows[1])
    assert LONG in ExchangeTableLayout(None).format_row(rows[1])


def test_origin_is_the_chat_the_run_or_the_sandbox() -> None:
    origins = {"session": "ses-abcdef0123", "run": "run-abcdef0123", "sandbox": "sb-abcdef0123"}
    rows = [exchange_row_cells(exchange(1, **{name: value}), NOW) for name, value in origins.items()]
    column = EXCHANGE_COLUMNS.index("FROM")
    assert [row[column] for row in rows] == ["chat abcdef0", "run abcdef01", "sandbox abcd"]
    assert exchange_row_cells(exchange(1, **origins), NOW)[column] == "chat abcdef0"


def test_the_origin_column_is_omitted_if_empty() -> None:
    rows = [exchange_row_cells(exchange(1), NOW)]
    assert "FROM" not in ExchangeTableLayout(rows, 80).format_row(EXCHANGE_COLUMNS)


def test_control_characters_of_providers_are_replaced() -> None:
    rows = [exchange_row_cells(each, NOW) for each in ALL]
    lines = "".join(ExchangeTableLayout(rows, 120).format_row(row) for row in rows)
    assert all(character.isprintable() for character in lines)
