"""Numbers as Prometheus reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True)
class Metric:
    """A number of one name for each set of labels."""

    name: str
    help: str
    type: Literal["counter", "gauge"]
    values: Iterable[tuple[Mapping[str, str], float]]


class Traffic:
    """Requests that were answered since the server started, by method and status."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()

    def count(self, method: str, status: int) -> None:
        # Anybody can make up methods; they must not make up rows.
        self.requests[method if method in _METHODS else "OTHER", status] += 1


_METHODS = frozenset("GET HEAD POST PUT PATCH DELETE OPTIONS WEBSOCKET".split())


@dataclass
class Exposition:
    """Collects metrics, and writes them down."""

    metrics: list[Metric] = field(default_factory=list)

    def counter(self, name: str, help: str, values: Iterable[tuple[Mapping[str, str], float]]) -> None:
        self.metrics.append(Metric(name, help, "counter", values))

    def gauge(self, name: str, help: str, values: Iterable[tuple[Mapping[str, str], float]]) -> None:
        self.metrics.append(Metric(name, help, "gauge", values))

    def text(self) -> str:
        lines = []
        for metric in self.metrics:
            lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.type}"]
            for labels, value in metric.values:
                named = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
                number = int(value) if float(value).is_integer() else value
                lines.append(f"{metric.name}{{{named}}} {number}" if named else f"{metric.name} {number}")
        return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
