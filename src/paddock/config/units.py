"""Parse and format sizes, durations, CPUs and port ranges: `2Gi`, `10m`, `500m`, `20000-29999`."""

from __future__ import annotations

import math
import re
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator

_SIZE_FACTORS = (
    {"": 1, "b": 1}
    | {unit: 1000**power for power, unit in enumerate(("k", "m", "g", "t", "p"), 1)}
    | {unit: 1024**power for power, unit in enumerate(("ki", "mi", "gi", "ti", "pi"), 1)}
)
_DURATION_MILLISECONDS = {"ms": 1, "": 1000, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_QUANTITY = re.compile(r"\s*(\d{1,30}(?:\.\d{1,30})?)\s*([A-Za-z]*)\s*", re.ASCII)
_DURATION_PART = re.compile(r"(\d{1,30}(?:\.\d{1,30})?)(ms|[smhdw]|)", re.ASCII)


class PortRange(NamedTuple):
    """Ports from `first` to `last`, inclusive."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


def parse_size(value: object) -> int:
    """Parse a size such as `2Gi`, `512Mi`, `10G`, `4096` or a number, in bytes; `B` may follow the unit.

    Raises `ValueError` for anything else, and for fractions of a byte.
    """
    problem = f"{value!r} is not a size; write bytes or a number with Ki, Mi, Gi, Ti, k, M, G or T, such as 512Mi"
    if isinstance(value, str) and (match := _QUANTITY.fullmatch(value)):
        unit = match[2].lower()
        factor = _SIZE_FACTORS.get(unit, _SIZE_FACTORS.get(unit.removesuffix("b")))
        if factor is None:
            raise ValueError(problem)
        amount = Decimal(match[1]) * factor
    else:
        amount = _parse_number(value, problem)
    if amount != amount.to_integral_value():
        raise ValueError(f"{value!r} is not a whole number of bytes")
    return int(amount)


def parse_duration(value: object) -> float:
    """Parse a duration such as `30s`, `10m`, `1h30m`, `250ms` or a number of seconds. Raises `ValueError`."""
    problem = f"{value!r} is not a duration; write seconds or a number with ms, s, m, h, d or w, such as 10m"
    if not isinstance(value, str):
        return float(_parse_number(value, problem))
    text = value.strip()
    parts = [(number, unit) for number, unit in _DURATION_PART.findall(text)]
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(problem)
    if len(parts) > 1 and "" in (unit for _, unit in parts):
        raise ValueError(problem)
    return float(sum((Decimal(number) * _DURATION_MILLISECONDS[unit] for number, unit in parts), Decimal()) / 1000)


def parse_cpu(value: object) -> float:
    """Parse CPUs such as `2`, `0.5` or `500m` (thousandths, as in Kubernetes). Raises `ValueError`."""
    problem = f"{value!r} is not a number of CPUs; write a number such as 0.5, or thousandths such as 500m"
    if isinstance(value, str) and (match := _QUANTITY.fullmatch(value)):
        if match[2] not in ("", "m"):
            raise ValueError(problem)
        return float(Decimal(match[1]) / (1000 if match[2] else 1))
    return float(_parse_number(value, problem))


def parse_port_range(value: object) -> PortRange:
    """Parse a port range such as `20000-29999`. Raises `ValueError`."""
    if isinstance(value, PortRange):
        return value
    match = re.fullmatch(r"\s*(\d{1,5})\s*-\s*(\d{1,5})\s*", str(value), re.ASCII)
    if not match or not 1024 <= int(match[1]) <= int(match[2]) <= 65535:
        raise ValueError(f"{value!r} is not a range of ports between 1024 and 65535, such as 20000-29999")
    return PortRange(int(match[1]), int(match[2]))


def format_size(size: int) -> str:
    """Return the shortest exact form of a size, which `parse_size` accepts."""
    for unit in ("Pi", "Ti", "Gi", "Mi", "Ki"):
        if size and size % _SIZE_FACTORS[unit.lower()] == 0:
            return f"{size // _SIZE_FACTORS[unit.lower()]}{unit}"
    return str(size)


def format_duration(seconds: float) -> str:
    """Return the shortest exact form of a duration, which `parse_duration` accepts."""
    for unit in ("d", "h", "m"):
        size = _DURATION_MILLISECONDS[unit] // 1000
        if seconds and seconds % size == 0:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s" if float(seconds).is_integer() else f"{Decimal(repr(float(seconds))):f}s"


def _parse_number(value: Any, problem: str) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise ValueError(problem)
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        raise ValueError(problem) from None
    if not math.isfinite(number) or number < 0:
        raise ValueError(problem)
    return number


class UnitMarker(NamedTuple):
    """Marks the unit of a field's type, so that output uses the same notation as input."""

    name: str


Bytes = Annotated[int, BeforeValidator(parse_size), UnitMarker("size")]
Seconds = Annotated[float, BeforeValidator(parse_duration), UnitMarker("duration")]
Cpus = Annotated[float, BeforeValidator(parse_cpu), UnitMarker("CPUs")]
Ports = Annotated[PortRange, BeforeValidator(parse_port_range), UnitMarker("port range")]
