from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from paddock.errors import ConfigError
from paddock.llm.formats.neutral import TokenUsage
from paddock.llm.metering.prices import PriceList

MILLION = 1_000_000
ROOT = Path(__file__).parents[4]


def price_list(tmp_path: Path, text: str) -> PriceList:
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    return PriceList.load(path)


def test_well_known_models_have_a_price() -> None:
    prices = PriceList.load()
    usage = TokenUsage(input=MILLION // 10, output=MILLION // 10)
    for model in ("gpt-4o-mini", "claude-sonnet-4-5", "gemini-2.5-flash", "qwen-plus", "glm-4.6", "kimi-k2.5"):
        cost = prices.cost_of("any", model, usage)
        assert cost is not None and 0 < cost < 2, model
    assert prices.cost_of("openai", "gpt-4o", usage) == pytest.approx(0.25 + 1.0)
    assert prices.cost_of("openai", "nobody-knows-me", usage) is None


def test_cache_reads_and_writes_have_their_own_price() -> None:
    usage = TokenUsage(input=1000, output=10, cache_read=700, cache_write=200, reasoning=5)
    expected = (100 * 3 + 700 * 0.3 + 200 * 3.75 + 10 * 15) / MILLION
    assert PriceList.load().cost_of("anthropic", "claude-sonnet-4-5-20250929", usage) == pytest.approx(expected)


def test_a_cache_without_a_price_costs_as_much_as_input(tmp_path: Path) -> None:
    prices = price_list(tmp_path, "m: {input: 2, output: 0}")
    assert prices.cost_of("p", "m", TokenUsage(input=MILLION, cache_read=MILLION // 2)) == 2.0
    # A provider that counts cached tokens in addition to the input must not make the remainder negative.
    assert prices.cost_of("p", "m", TokenUsage(input=0, cache_read=MILLION)) == 2.0


def test_long_requests_have_their_price(tmp_path: Path) -> None:
    text = "m: {input: 1, output: 1, over: {100: {input: 2, output: 2}, 200: {input: 3, output: 3}}}"
    prices = price_list(tmp_path, text)
    costs = [prices.cost_of("p", "m", TokenUsage(input=tokens)) for tokens in (100, 101, 200, 201)]
    assert costs == pytest.approx([100e-6, 202e-6, 400e-6, 603e-6])


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("tiny", 1),
        ("tiny-pro", 2),
        ("tiny-pro-2025-01-31", 2),
        ("tiny-pro-20250131", 2),
        ("tiny-pro-20250201", 4),
        ("TINY", 1),
        ("vendor/tiny", 1),
        ("models/tiny-pro", 2),
        ("tiny-unknown", 3),
        ("other", None),
    ],
)
def test_longest_matching_name_wins(tmp_path: Path, model: str, expected: int | None) -> None:
    names = {"tiny": 1, "tiny-pro": 2, "tiny-*": 3, "tiny-pro-20250201": 4}
    prices = price_list(tmp_path, "".join(f"{name}: {{input: {price}, output: 0}}\n" for name, price in names.items()))
    assert prices.cost_of("p", model, TokenUsage(input=MILLION)) == expected


def test_provider_prices_and_free_local_models(tmp_path: Path) -> None:
    prices = price_list(tmp_path, "glm-4.6: {input: 9, output: 9}\nhome/*: 0\nshop/glm-4.6: {input: 8, output: 0}\n")
    usage = TokenUsage(input=MILLION)
    assert prices.cost_of("zhipu", "glm-4.6", usage) == 9
    assert prices.cost_of("shop", "glm-4.6", usage) == 8
    assert prices.cost_of("home", "glm-4.6", usage) == 0
    assert prices.cost_of("home", "org/anything:7b", usage) == 0
    assert prices.cost_of("zhipu", "gpt-4o", usage) == 2.5


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a: [", "prices.yaml:1: not valid YAML"),
        ("- a\n", "prices.yaml:1: a list of prices should be a mapping"),
        ("a: {input: 1, output: 1}\nb: cheap\n", "prices.yaml:2: b should be a mapping"),
        ("a:\n  input: 1\n", "prices.yaml:2: a.output is missing"),
        ("a:\n  input: 1\n  output: much\n", "prices.yaml:3: a.output should be US dollars"),
        ("a: {input: -1, output: 1}", "a.input should be US dollars"),
        ("a: {input: .nan, output: 1}", "a.input should be US dollars"),
        ("a: {input: inf, output: 1}", "a.input should be US dollars"),
        ("a: {input: 1, output: 1, cache: 1}", "a.cache is unknown; known: input, output"),
        ("a: 0\nb: 0\na: 0\n", "prices.yaml:3: a is written twice"),
        ("a: {input: 1, output: 1, over: {many: 0}}", "a.over.many should be a number of tokens"),
    ],
)
def test_error_in_price_list_names_the_line(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        price_list(tmp_path, text)
    assert complaint in caught.value.message


def test_error_names_missing_price_list(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"llm\.prices: .*none\.yaml cannot be read"):
        PriceList.load(tmp_path / "none.yaml")


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    assert price_list(tmp_path, "# nothing\n").cost_of("p", "gpt-4o", TokenUsage(input=MILLION)) == 2.5


def test_cache_of_names_is_bounded() -> None:
    prices = PriceList.load()
    for number in range(5000):
        assert prices.cost_of("p", f"x{number}", TokenUsage()) is None
    assert len(prices._known) <= 4096


def test_the_wheel_carries_the_list(tmp_path: Path) -> None:
    build = "import sys; from hatchling.builders.wheel import WheelBuilder as B; "
    build += "print(next(B(sys.argv[1]).build(directory=sys.argv[2])))"
    made = subprocess.run([sys.executable, "-c", build, ROOT, tmp_path], capture_output=True, text=True, check=True)
    with zipfile.ZipFile(made.stdout.strip()) as wheel:
        assert "paddock/llm/metering/prices.yaml" in wheel.namelist()
