"""Formatting of exchanges with models."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from paddock.cli.connection.server_client import ServerClient
from paddock.cli.llm.chat_completion import CompletionResult
from paddock.cli.llm.exchange_filters import build_exchange_query, parse_time_option
from paddock.cli.llm.exchange_text import (
    format_answered_by,
    format_exchange_outcome,
    format_requested_model,
    format_token_counts,
)
from paddock.cli.llm.model_commands import _answer_facts as facts_of_a_test
from paddock.cli.output.errors import UsageError
from paddock.cli.output.formatting import format_cost, format_count, format_latency


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (None, ""),
        (0.0, "0 ms"),
        (0.0123, "12 ms"),
        (0.9999, "1.0 s"),
        (1.44, "1.4 s"),
        (99.96, "100 s"),
        (605, "605 s"),
    ],
)
def test_latency_format(seconds: float | None, expected: str) -> None:
    assert format_latency(seconds) == expected


@pytest.mark.parametrize(
    ("number", "expected"),
    [(None, ""), (0, "0"), (999, "999"), (1200, "1.2k"), (9_960, "10k"), (999_600, "1.0M"), (34_000_000, "34M")],
)
def test_count_format(number: int | None, expected: str) -> None:
    assert format_count(number) == expected


@pytest.mark.parametrize(
    ("dollars", "expected"),
    [(None, ""), (0.0, "$0"), (0.00001, "<$0.0001"), (0.0123, "$0.0123"), (0.5, "$0.50"), (1234.5, "$1,234.50")],
)
def test_cost_format(dollars: float | None, expected: str) -> None:
    assert format_cost(dollars) == expected


def exchange(**more: Any) -> dict[str, Any]:
    known = {"model": "fast", "provider": "openai", "providerKind": "openai", "providerModel": "gpt-5", "outcome": "ok"}
    return {**known, "status": 200, **more}


def test_different_provider_model_is_shown() -> None:
    assert format_requested_model(exchange()) == "fast → openai/gpt-5"
    assert format_requested_model(exchange(providerModel="fast")) == "fast → openai"
    assert format_requested_model(exchange(provider=None)) == "fast"


@pytest.mark.parametrize("kind", ["script", "replay"])
def test_answers_without_a_model_are_labelled(kind: str) -> None:
    made_up = exchange(providerKind=kind)
    assert "no real model was used" in format_answered_by(made_up)
    assert format_exchange_outcome(made_up) == f"ok ({kind})"
    assert f"({kind})" in format_exchange_outcome({**made_up, "outcome": "cut"})
    assert format_exchange_outcome(exchange()) == "ok"


def test_a_failed_outcome_includes_the_reason() -> None:
    assert format_exchange_outcome(exchange(outcome="failed", status=502, error="refused")) == "failed 502: refused"
    assert format_exchange_outcome(exchange(outcome="client_gone", status=200)) == "client gone"


def test_estimated_tokens_are_marked() -> None:
    usage = {"input": 1200, "output": 3, "cacheRead": 1000, "cacheWrite": 0, "reasoning": 0}
    assert format_token_counts(exchange(usage=usage)) == "1,200 in, 3 out (including 1,000 read from cache)"
    assert format_token_counts(exchange(usage=usage, estimated=True)).startswith("~1,200 in, ~3 out")


def test_time_options_accept_ages_and_dates() -> None:
    assert abs(parse_time_option("2h", "--since") - (datetime.now(UTC) - timedelta(hours=2))) < timedelta(seconds=5)
    assert parse_time_option("2026-01-31T12:00+01:00", "--since") == datetime(2026, 1, 31, 11, tzinfo=UTC)
    assert parse_time_option("2026-01-31", "--since") == datetime(2026, 1, 31).astimezone(UTC)


@pytest.mark.parametrize("text", ["yesterday", "", "2026-13-01", "9" * 40, "-1h"])
def test_invalid_time_options_are_rejected(text: str) -> None:
    with pytest.raises(UsageError, match="--since"):
        parse_time_option(text, "--since")


def test_an_answer_of_a_fallback_is_labelled() -> None:
    notes = ["fast did not answer; asked slow"]
    fell = exchange(route="slow", notes=notes, number=1, id="ex-1")
    facts = dict(facts_of_a_test(CompletionResult(), fell))
    assert facts["answered by"] == "a fallback: openai/gpt-5"
    assert facts["note"] == notes[0]
    itself = exchange(route="fast", notes=["asked openai again: timeout"], number=1, id="ex-1")
    assert "fallback" not in dict(facts_of_a_test(CompletionResult(), itself))["answered by"]


@pytest.mark.parametrize("text", ['"', "?!", "w " * 40])
@pytest.mark.anyio
async def test_an_invalid_search_names_the_option(text: str) -> None:
    async with ServerClient("http://127.0.0.1:9", None) as client:
        with pytest.raises(UsageError, match=r"^--search "):
            await build_exchange_query(client, search=text)
