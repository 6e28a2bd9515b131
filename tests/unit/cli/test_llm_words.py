"""How exchanges with models are put in words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from paddock.cli.client import Client
from paddock.cli.failure import UsageProblem
from paddock.cli.llm import _facts as facts_of_a_test
from paddock.cli.llm_filters import query, when
from paddock.cli.llm_question import Answer
from paddock.cli.llm_words import answered_by, count, latency, model_of, money, outcome_of, tokens


@pytest.mark.parametrize(
    ("seconds", "said"),
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
def test_how_long_it_took(seconds: float | None, said: str) -> None:
    assert latency(seconds) == said


@pytest.mark.parametrize(
    ("number", "said"),
    [(None, ""), (0, "0"), (999, "999"), (1200, "1.2k"), (9_960, "10k"), (999_600, "1.0M"), (34_000_000, "34M")],
)
def test_how_many_tokens(number: int | None, said: str) -> None:
    assert count(number) == said


@pytest.mark.parametrize(
    ("dollars", "said"),
    [(None, ""), (0.0, "$0"), (0.00001, "<$0.0001"), (0.0123, "$0.0123"), (0.5, "$0.50"), (1234.5, "$1,234.50")],
)
def test_what_it_cost(dollars: float | None, said: str) -> None:
    assert money(dollars) == said


def exchange(**more: Any) -> dict[str, Any]:
    known = {"model": "fast", "provider": "openai", "providerKind": "openai", "providerModel": "gpt-5", "outcome": "ok"}
    return {**known, "status": 200, **more}


def test_who_was_asked_is_said_where_it_says_more() -> None:
    assert model_of(exchange()) == "fast → openai/gpt-5"
    assert model_of(exchange(providerModel="fast")) == "fast → openai"
    assert model_of(exchange(provider=None)) == "fast"


@pytest.mark.parametrize("kind", ["script", "replay"])
def test_what_no_model_answered_is_labelled(kind: str) -> None:
    made_up = exchange(providerKind=kind)
    assert "no model was asked" in answered_by(made_up)
    assert outcome_of(made_up) == f"ok ({kind})"
    assert f"({kind})" in outcome_of({**made_up, "outcome": "cut"})
    assert outcome_of(exchange()) == "ok"


def test_an_outcome_that_is_not_good_says_why() -> None:
    assert outcome_of(exchange(outcome="failed", status=502, error="refused")) == "failed 502: refused"
    assert outcome_of(exchange(outcome="client_gone", status=200)) == "client gone"


def test_guessed_tokens_are_marked() -> None:
    usage = {"input": 1200, "output": 3, "cacheRead": 1000, "cacheWrite": 0, "reasoning": 0}
    assert tokens(exchange(usage=usage)) == "1,200 in, 3 out (of these 1,000 from a cache)"
    assert tokens(exchange(usage=usage, estimated=True)).startswith("~1,200 in, ~3 out")


def test_times_are_so_long_ago_or_on_a_day() -> None:
    assert abs(when("2h", "--since") - (datetime.now(UTC) - timedelta(hours=2))) < timedelta(seconds=5)
    assert when("2026-01-31T12:00+01:00", "--since") == datetime(2026, 1, 31, 11, tzinfo=UTC)
    assert when("2026-01-31", "--since") == datetime(2026, 1, 31).astimezone(UTC)


@pytest.mark.parametrize("text", ["yesterday", "", "2026-13-01", "9" * 40, "-1h"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageProblem, match="--since"):
        when(text, "--since")


def test_an_answer_of_a_fallback_is_told_as_one() -> None:
    notes = ["fast did not answer; asked slow"]
    fell = exchange(route="slow", notes=notes, number=1, id="ex-1")
    facts = dict(facts_of_a_test(Answer(), fell))
    assert facts["answered by"] == "a fallback: openai/gpt-5"
    assert facts["note"] == notes[0]
    itself = exchange(route="fast", notes=["asked openai again: timeout"], number=1, id="ex-1")
    assert "fallback" not in dict(facts_of_a_test(Answer(), itself))["answered by"]


@pytest.mark.parametrize("text", ['"', "?!", "w " * 40])
@pytest.mark.anyio
async def test_what_cannot_be_searched_for_is_a_mistake_of_that_option(text: str) -> None:
    async with Client("http://127.0.0.1:9", None) as client:
        with pytest.raises(UsageProblem, match=r"^--search "):
            await query(client, search=text)
