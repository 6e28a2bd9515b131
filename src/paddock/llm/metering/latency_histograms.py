"""Histograms of how long models take to answer, by model and provider, since the server started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from paddock.llm.exchange import Exchange, ExchangeOutcome
from paddock.llm.request_kind import GENERATE_OPERATION
from paddock.telemetry.prometheus import PrometheusHistogram

LATENCY_BUCKET_BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0, 120.0, 300.0, 600.0)
MAX_LATENCY_SERIES = 200
"""Maximum pairs of model and provider, because patterns and `llm.direct` let clients invent model names."""
OTHER_MODELS = "other"
"""Label of all further pairs."""


@dataclass(slots=True)
class AnswerLatencyHistograms:
    """Seconds from a request to the first byte and to the end of its answer."""

    first_byte: PrometheusHistogram = field(default_factory=lambda: PrometheusHistogram(LATENCY_BUCKET_BOUNDS))
    total: PrometheusHistogram = field(default_factory=lambda: PrometheusHistogram(LATENCY_BUCKET_BOUNDS))


class ModelLatencyHistograms:
    """Measures the complete answers of models."""

    def __init__(self) -> None:
        self._by_model: dict[tuple[str, str], AnswerLatencyHistograms] = {}

    @property
    def by_model(self) -> Mapping[tuple[str, str], AnswerLatencyHistograms]:
        """Latencies by the name in `llm.models`, which may be a pattern, and the provider."""
        return self._by_model

    def count_exchange(self, exchange: Exchange) -> None:
        """Count an exchange that has ended; only complete answers tell a model's speed."""
        if (
            exchange.outcome is not ExchangeOutcome.OK
            or exchange.operation != GENERATE_OPERATION
            or exchange.first_byte is None
        ):
            return
        key = exchange.route or "", exchange.provider or ""
        latencies = self._by_model.get(key)
        if latencies is None:
            if len(self._by_model) >= MAX_LATENCY_SERIES:
                key = OTHER_MODELS, OTHER_MODELS
            latencies = self._by_model.setdefault(key, AnswerLatencyHistograms())
        latencies.first_byte.add(exchange.first_byte)
        latencies.total.add(exchange.total)
