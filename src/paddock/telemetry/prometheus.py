"""Metrics in Prometheus text format, with histograms and request counters."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


SUFFIX_LABEL = ""
"""Pseudo-label that holds the name suffix of a histogram row."""


@dataclass(frozen=True)
class PrometheusMetric:
    """A named metric with one value per set of labels."""

    name: str
    help: str
    type: Literal["counter", "gauge", "histogram"]
    values: Iterable[tuple[Mapping[str, str], float]]


class PrometheusHistogram:
    """Counts values per bucket bound."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        """Values per bucket, not cumulative; the last bucket is above all bounds."""
        self.sum = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class RequestMetrics:
    """Counts and durations of answered requests by method and status."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.seconds = PrometheusHistogram((0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0))

    def count_request(self, method: str, status: int, seconds: float | None = None) -> None:
        # Clients can invent methods, which must not create new rows.
        self.requests[method if method in _METHODS else "OTHER", status] += 1
        if seconds is not None:
            self.seconds.add(seconds)


_METHODS = frozenset("GET HEAD POST PUT PATCH DELETE OPTIONS WEBSOCKET".split())


@dataclass
class MetricsExposition:
    """Collects metrics and renders them as Prometheus text."""

    metrics: list[PrometheusMetric] = field(default_factory=list)

    def counter(self, name: str, help: str, values: Iterable[tuple[Mapping[str, str], float]]) -> None:
        self.metrics.append(PrometheusMetric(name, help, "counter", values))

    def gauge(self, name: str, help: str, values: Iterable[tuple[Mapping[str, str], float]]) -> None:
        self.metrics.append(PrometheusMetric(name, help, "gauge", values))

    def histogram(self, name: str, help: str, values: PrometheusHistogram) -> None:
        self.histograms(name, help, [({}, values)])

    def histograms(self, name: str, help: str, values: Iterable[tuple[Mapping[str, str], PrometheusHistogram]]) -> None:
        """Add one histogram per set of labels."""
        rows = [row for labels, histogram in values for row in _histogram_rows(labels, histogram)]
        self.metrics.append(PrometheusMetric(name, help, "histogram", rows))

    def render(self) -> str:
        lines = []
        for metric in self.metrics:
            lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.type}"]
            for labels, value in metric.values:
                named = ",".join(
                    f'{name}="{_escape_label(text)}"' for name, text in labels.items() if name != SUFFIX_LABEL
                )
                number = int(value) if float(value).is_integer() else value
                name = metric.name + labels.get(SUFFIX_LABEL, "")
                lines.append(f"{name}{{{named}}} {number}" if named else f"{name} {number}")
        return "\n".join(lines) + "\n"


def _histogram_rows(
    labels: Mapping[str, str], values: PrometheusHistogram
) -> Iterator[tuple[Mapping[str, str], float]]:
    below = 0
    for bound, count in zip((*values.bounds, float("inf")), values.counts, strict=True):
        below += count
        yield {SUFFIX_LABEL: "_bucket", **labels, "le": "+Inf" if bound == float("inf") else f"{bound:g}"}, below
    yield {SUFFIX_LABEL: "_sum", **labels}, values.sum
    yield {SUFFIX_LABEL: "_count", **labels}, below


def _escape_label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
