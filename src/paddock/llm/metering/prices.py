"""Prices of models: the bundled list, overridden by the user's own."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Self

import yaml

from paddock.config.wildcards import wildcard_source
from paddock.config.yaml_files import FAST_LOADER
from paddock.errors import ConfigError
from paddock.llm.formats.neutral import TokenUsage

BUNDLED_PRICE_LIST = "prices.yaml"
_KINDS = ("input", "output", "cache_read", "cache_write")
_DATE = re.compile(r"-(\d{8}|\d{4}-\d\d-\d\d)$")
_REMEMBERED = 4096
_PER = 1_000_000


@dataclass(frozen=True, slots=True)
class TokenPrice:
    """Prices of a model in US dollars per million tokens."""

    input: float
    output: float
    cache_read: float
    cache_write: float
    over: Mapping[int, TokenPrice] = field(default_factory=dict)
    """Prices of requests with more input tokens than the bound, the largest bound first."""

    def cost_of(self, usage: TokenUsage) -> float:
        for bound, price in self.over.items():
            if usage.input > bound:
                return price.cost_of(usage)
        fresh = max(0, usage.input - usage.cache_read - usage.cache_write)
        dollars = fresh * self.input + usage.output * self.output
        return (dollars + usage.cache_read * self.cache_read + usage.cache_write * self.cache_write) / _PER


FREE_PRICE = TokenPrice(0.0, 0.0, 0.0, 0.0)


class PriceList:
    """Prices by model name. Create it with `PriceList.load`."""

    def __init__(self, prices: Mapping[str, TokenPrice]) -> None:
        lowered = {name.lower(): price for name, price in prices.items()}
        self._exact = {name: price for name, price in lowered.items() if "*" not in name}
        self._patterns = [(name, re.compile(wildcard_source(name), re.DOTALL)) for name in lowered if "*" in name]
        self._prices = lowered
        self._known: dict[tuple[str, str], TokenPrice | None] = {}

    @classmethod
    def load(cls, path: Path | None = None) -> Self:
        """Load the bundled list, overridden by the user's own. Raises `ConfigError` with the line."""
        bundled_text = files("paddock.llm.metering").joinpath(BUNDLED_PRICE_LIST).read_text(encoding="utf-8")
        prices = _parse_prices(bundled_text, BUNDLED_PRICE_LIST, FAST_LOADER)
        if path is not None:
            try:
                text = path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(f"llm.prices: {path} cannot be read: {error}") from error
            prices |= _parse_prices(text, str(path))
        return cls(prices)

    def cost_of(self, provider: str, model: str, usage: TokenUsage) -> float | None:
        """Return the cost of some usage in US dollars; `None` if no price is known."""
        key = (provider, model)
        if key in self._known:
            price = self._known[key]
        else:
            if len(self._known) >= _REMEMBERED:  # names come from clients
                self._known.clear()
            price = self._known[key] = self._find(provider, model)
        return price.cost_of(usage) if price is not None else None

    def _find(self, provider: str, model: str) -> TokenPrice | None:
        names = set(_lookup_names(provider.lower(), model[:300].lower()))
        matching_names = [name for name in names if name in self._exact]
        matching_names += [name for name, pattern in self._patterns if any(map(pattern.fullmatch, names))]
        best = max(matching_names, key=lambda name: ("/" in name, len(name)), default=None)
        return self._prices[best] if best is not None else None


def _lookup_names(provider: str, model: str) -> Iterator[str]:
    """Yield the names under which a list may have the model."""
    for name in {model, model.rpartition("/")[2]}:
        for dateless in {name, _DATE.sub("", name)}:
            yield dateless
            yield f"{provider}/{dateless}"


def _parse_prices(text: str, shown: str, loader: type[yaml.SafeLoader] = yaml.SafeLoader) -> dict[str, TokenPrice]:
    try:
        tree = yaml.compose(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{shown}:{line}: not valid YAML: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{shown}:1: not valid YAML: {error}") from error
    if tree is None:
        return {}
    return {name: _parse_price(value, shown, name) for name, value in _mapping_entries(tree, shown, "a list of prices")}


def _mapping_entries(node: yaml.Node, shown: str, subject: str) -> Iterator[tuple[str, yaml.Node]]:
    if not isinstance(node, yaml.MappingNode):
        raise _config_error(node, shown, subject, "should be a mapping, such as `some-model: {input: 1, output: 2}`")
    seen: set[str] = set()
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise _config_error(key, shown, subject, "has a name that is not text")
        if key.value in seen:
            raise _config_error(key, shown, key.value, "is written twice; keep one")
        seen.add(key.value)
        yield key.value, value


def _parse_price(node: yaml.Node, shown: str, name: str) -> TokenPrice:
    if isinstance(node, yaml.ScalarNode) and node.value == "0":
        return FREE_PRICE
    numbers: dict[str, float] = {}
    over: dict[int, TokenPrice] = {}
    for kind, value in _mapping_entries(node, shown, name):
        if kind in _KINDS:
            numbers[kind] = _parse_number(value, shown, f"{name}.{kind}")
        elif kind == "over":
            for bound, price in _mapping_entries(value, shown, f"{name}.over"):
                if not re.fullmatch(r"[1-9]\d{0,11}", bound):
                    raise _config_error(value, shown, f"{name}.over.{bound}", "should be a number of tokens")
                over[int(bound)] = _parse_price(price, shown, f"{name}.over.{bound}")
        else:
            raise _config_error(value, shown, f"{name}.{kind}", f"is unknown; known: {', '.join(_KINDS)}, over")
    for kind in ("input", "output"):
        if kind not in numbers:
            raise _config_error(node, shown, f"{name}.{kind}", "is missing; add it")
    return TokenPrice(
        numbers["input"],
        numbers["output"],
        numbers.get("cache_read", numbers["input"]),
        numbers.get("cache_write", numbers["input"]),
        dict(sorted(over.items(), reverse=True)),
    )


def _parse_number(node: yaml.Node, shown: str, name: str) -> float:
    try:
        number = float(node.value) if isinstance(node, yaml.ScalarNode) else math.nan
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise _config_error(node, shown, name, "should be US dollars per million tokens, such as 0.5")
    return number


def _config_error(node: yaml.Node, shown: str, name: str, problem: str) -> ConfigError:
    return ConfigError(f"{shown}:{node.start_mark.line + 1}: {name} {problem}")
