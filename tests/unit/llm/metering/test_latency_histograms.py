"""Latencies of models are counted in histograms of bounded number."""

from __future__ import annotations

from typing import Any

import pytest

from paddock.llm.exchange import ExchangeOutcome
from paddock.llm.metering.latency_histograms import MAX_LATENCY_SERIES, OTHER_MODELS, ModelLatencyHistograms
from paddock.telemetry.prometheus import MetricsExposition

from ..archive.exchange_samples import an_exchange


def test_complete_answers_are_counted_by_model_and_provider() -> None:
    latencies = ModelLatencyHistograms()
    latencies.count_exchange(an_exchange(first_byte=0.2, total=3.0))
    latencies.count_exchange(an_exchange(first_byte=0.3, total=7.0))
    exposition = MetricsExposition()
    [((model, provider), counted)] = latencies.by_model.items()
    exposition.histograms("seconds", "Seconds.", [({"model": model, "provider": provider}, counted.total)])
    lines = exposition.render().splitlines()
    assert 'seconds_bucket{model="fast",provider="here",le="2.5"} 0' in lines
    assert 'seconds_bucket{model="fast",provider="here",le="5"} 1' in lines
    assert 'seconds_count{model="fast",provider="here"} 2' in lines
    assert 'seconds_sum{model="fast",provider="here"} 10' in lines
    assert counted.first_byte.sum == 0.5


@pytest.mark.parametrize(
    "fields",
    [
        {"outcome": ExchangeOutcome.FAILED},
        {"outcome": ExchangeOutcome.CUT},
        {"operation": "embed"},
        {"first_byte": None},
    ],
)
def test_other_exchanges_are_not_counted(fields: dict[str, Any]) -> None:
    latencies = ModelLatencyHistograms()
    latencies.count_exchange(an_exchange(**fields))
    assert not latencies.by_model


def test_invented_names_share_one_series() -> None:
    latencies = ModelLatencyHistograms()
    for number in range(MAX_LATENCY_SERIES + 50):
        latencies.count_exchange(an_exchange(route=f"one/{number}"))
    assert len(latencies.by_model) == MAX_LATENCY_SERIES + 1
    assert sum(latencies.by_model[OTHER_MODELS, OTHER_MODELS].total.counts) == 50
