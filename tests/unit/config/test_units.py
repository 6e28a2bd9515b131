from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.config.units import (
    PortRange,
    format_duration,
    format_size,
    parse_cpu,
    parse_duration,
    parse_port_range,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2Gi", 2 * 2**30), ("512Mi", 512 * 2**20), ("10G", 10**10), ("1.5Ki", 1536), ("4096", 4096), (4096, 4096),
        ("1k", 1000), ("64MiB", 64 * 2**20), ("5B", 5), ("1GB", 10**9), (" 1 Gi ", 2**30), (0, 0),
    ],
)  # fmt: skip
def test_sizes_are_parsed(text: object, expected: int) -> None:
    assert parse_size(text) == expected


@pytest.mark.parametrize(
    "text", ["", "-1", "2Qi", "Gi", "1,5G", "0.5", -1, 1.5, True, None, float("nan"), "٣Gi", "1e9"]
)
def test_invalid_sizes_are_refused(text: object) -> None:
    with pytest.raises(ValueError, match="not a"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("30s", 30), ("10m", 600), ("1h", 3600), ("1d", 86400), ("250ms", 0.25), ("1h30m", 5400), ("45", 45), (1.5, 1.5)],
)
def test_durations_are_parsed(text: object, expected: float) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize("text", ["", "-5s", "1y", "1h30", "h", "1h x", -1, True, None, float("inf"), "1 h", "5M"])
def test_invalid_durations_are_refused(text: object) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(text)


@pytest.mark.parametrize(("text", "expected"), [("500m", 0.5), ("2", 2), ("0.25", 0.25), (1, 1), (1.5, 1.5)])
def test_cpu_counts_are_parsed(text: object, expected: float) -> None:
    assert parse_cpu(text) == expected


@pytest.mark.parametrize("text", ["", "2k", "m", "-1", -1, None, True])
def test_invalid_cpu_counts_are_refused(text: object) -> None:
    with pytest.raises(ValueError, match="CPUs"):
        parse_cpu(text)


def test_port_ranges_are_parsed() -> None:
    assert parse_port_range("20000-29999") == PortRange(20000, 29999)
    for text in ("", "20000", "80-90", "3000-2000", "60000-70000"):
        with pytest.raises(ValueError, match="range of ports"):
            parse_port_range(text)


@given(st.integers(0, 2**60))
def test_formatted_sizes_are_parsed_back(size: int) -> None:
    assert parse_size(format_size(size)) == size


@given(st.integers(0, 10**9) | st.floats(0, 10**9, allow_nan=False).map(lambda seconds: round(seconds, 3)))
def test_formatted_durations_are_parsed_back(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


@given(st.text() | st.floats() | st.integers() | st.none() | st.booleans())
def test_invalid_values_raise_only_value_error(value: object) -> None:
    for parse in (parse_size, parse_duration, parse_cpu, parse_port_range):
        try:
            parse(value)
        except ValueError:
            pass
