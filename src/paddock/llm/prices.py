"""What models cost: a list that Paddock brings, and what users write over it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Self

import yaml

from paddock.config.yamls import QUICK
from paddock.errors import ConfigError
from paddock.llm.neutral import Usage

LIST = "prices.yaml"
_KINDS = ("input", "output", "cache_read", "cache_write")
_DATE = re.compile(r"-(\d{8}|\d{4}-\d\d-\d\d)$")
_REMEMBERED = 4096
_PER = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars for a million tokens."""

    input: float
    output: float
    cache_read: float
    cache_write: float
    over: Mapping[int, Price] = field(default_factory=dict)
    """Prices of requests with more tokens of input than this, the largest bound first."""

    def of(self, usage: Usage) -> float:
        for bound, price in self.over.items():
            if usage.input > bound:
                return price.of(usage)
        fresh = max(0, usage.input - usage.cache_read - usage.cache_write)
        dollars = fresh * self.input + usage.output * self.output
        return (dollars + usage.cache_read * self.cache_read + usage.cache_write * self.cache_write) / _PER


FREE = Price(0.0, 0.0, 0.0, 0.0)


class Prices:
    """Prices by the names of models. Make it with `Prices.load`."""

    def __init__(self, prices: Mapping[str, Price]) -> None:
        lowered = {name.lower(): price for name, price in prices.items()}
        self._exact = {name: price for name, price in lowered.items() if "*" not in name}
        self._patterns = [
            (name, re.compile(".*".join(map(re.escape, name.split("*"))), re.DOTALL)) for name in lowered if "*" in name
        ]
        self._prices = lowered
        self._known: dict[tuple[str, str], Price | None] = {}

    @classmethod
    def load(cls, path: Path | None = None) -> Self:
        """The list that Paddock brings, with the user's own laid over it. Raises `ConfigError` naming the line."""
        brought = files("paddock.llm").joinpath(LIST).read_text(encoding="utf-8")
        prices = _parse(brought, LIST, QUICK)
        if path is not None:
            try:
                text = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(f"llm.prices: {path} cannot be read: {error}") from error
            prices |= _parse(text, str(path))
        return cls(prices)

    def cost(self, provider: str, model: str, usage: Usage) -> float | None:
        """What this use cost in US dollars; `None` where no price is known."""
        key = (provider, model)
        if key in self._known:
            price = self._known[key]
        else:
            if len(self._known) >= _REMEMBERED:  # names come from outside
                self._known.clear()
            price = self._known[key] = self._find(provider, model)
        return price.of(usage) if price is not None else None

    def _find(self, provider: str, model: str) -> Price | None:
        names = set(_names(provider.lower(), model[:300].lower()))
        fitting = [name for name in names if name in self._exact]
        fitting += [name for name, pattern in self._patterns if any(map(pattern.fullmatch, names))]
        best = max(fitting, key=lambda name: ("/" in name, len(name)), default=None)
        return self._prices[best] if best is not None else None


def _names(provider: str, model: str) -> Iterator[str]:
    """All that a model may be called in a list."""
    for name in {model, model.rpartition("/")[2]}:
        for dateless in {name, _DATE.sub("", name)}:
            yield dateless
            yield f"{provider}/{dateless}"


def _parse(text: str, shown: str, loader: type[yaml.SafeLoader] = yaml.SafeLoader) -> dict[str, Price]:
    try:
        tree = yaml.compose(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{shown}:{line}: not valid YAML: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{shown}:1: not valid YAML: {error}") from error
    if tree is None:
        return {}
    return {name: _price(value, shown, name) for name, value in _entries(tree, shown, "a list of prices")}


def _entries(node: yaml.Node, shown: str, what: str) -> Iterator[tuple[str, yaml.Node]]:
    if not isinstance(node, yaml.MappingNode):
        raise _wrong(node, shown, what, "should be a mapping, such as `some-model: {input: 1, output: 2}`")
    seen: set[str] = set()
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise _wrong(key, shown, what, "has a name that is no text")
        if key.value in seen:
            raise _wrong(key, shown, key.value, "is written twice; keep one")
        seen.add(key.value)
        yield key.value, value


def _price(node: yaml.Node, shown: str, name: str) -> Price:
    if isinstance(node, yaml.ScalarNode) and node.value == "0":
        return FREE
    numbers: dict[str, float] = {}
    over: dict[int, Price] = {}
    for kind, value in _entries(node, shown, name):
        if kind in _KINDS:
            numbers[kind] = _number(value, shown, f"{name}.{kind}")
        elif kind == "over":
            for bound, price in _entries(value, shown, f"{name}.over"):
                if not re.fullmatch(r"[1-9]\d{0,11}", bound):
                    raise _wrong(value, shown, f"{name}.over.{bound}", "should be a number of tokens")
                over[int(bound)] = _price(price, shown, f"{name}.over.{bound}")
        else:
            raise _wrong(value, shown, f"{name}.{kind}", f"is not known; known are: {', '.join(_KINDS)}, over")
    for kind in ("input", "output"):
        if kind not in numbers:
            raise _wrong(node, shown, f"{name}.{kind}", "is missing; add it")
    return Price(
        numbers["input"],
        numbers["output"],
        numbers.get("cache_read", numbers["input"]),
        numbers.get("cache_write", numbers["input"]),
        dict(sorted(over.items(), reverse=True)),
    )


def _number(node: yaml.Node, shown: str, name: str) -> float:
    try:
        number = float(node.value) if isinstance(node, yaml.ScalarNode) else math.nan
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise _wrong(node, shown, name, "should be US dollars for a million tokens, such as 0.5")
    return number


def _wrong(node: yaml.Node, shown: str, name: str, problem: str) -> ConfigError:
    return ConfigError(f"{shown}:{node.start_mark.line + 1}: {name} {problem}")
