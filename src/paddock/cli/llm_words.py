"""How exchanges with models are put in words: times, tokens, money, who answered."""

from __future__ import annotations

from datetime import datetime
from typing import Any

NOT_MODELS = ("script", "replay")
"""Kinds of provider whose answers no model gave."""


def latency(seconds: float | None) -> str:
    """`12 ms`, `1.4 s`, `95 s`."""
    if seconds is None:
        return ""
    if seconds < 0.9995:
        return f"{max(0.0, seconds) * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 99.95 else f"{seconds:.0f} s"


def count(number: int | None) -> str:
    """`950`, `1.2k`, `34k`, `1.5M`."""
    if number is None:
        return ""
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if number >= size * 0.9995:
            share = number / size
            return f"{share:.1f}{unit}" if share < 9.95 else f"{share:.0f}{unit}"
    return str(number)


def money(dollars: float | None) -> str:
    """US dollars, with as many digits as small sums need; nothing where it is not known."""
    if dollars is None:
        return ""
    if dollars == 0:
        return "$0"
    if dollars < 0.000_05:
        return "<$0.0001"
    return f"${dollars:.4f}" if dollars < 0.1 else f"${dollars:,.2f}"


def tokens(exchange: dict[str, Any], *, part: bool = False) -> str:
    """All that is known of the tokens of an exchange, or of many, of which a part may be guessed."""
    usage = exchange.get("usage") or {}
    guess = "~" if exchange.get("estimated") else ""
    said = f"{guess}{usage.get('input', 0):,} in, {guess}{usage.get('output', 0):,} out"
    parts = {"cacheRead": "from a cache", "cacheWrite": "into a cache", "reasoning": "thought"}
    more = [f"{usage[name]:,} {words}" for name, words in parts.items() if usage.get(name)]
    if more:
        said += f" (of these {', '.join(more)})"
    guessed = "in part guessed" if part else "guessed"
    return f"{said}; {guessed}, because the provider did not say" if guess else said


def model_of(exchange: dict[str, Any]) -> str:
    """What was asked for, and who was asked where that says more: `fast → openai/gpt-5-mini`."""
    asked, provider = str(exchange.get("model") or "?"), exchange.get("provider")
    if not provider:
        return asked
    answered = exchange.get("providerModel")
    return f"{asked} → {provider}" if answered in (None, "", asked) else f"{asked} → {provider}/{answered}"


def answered_by(exchange: dict[str, Any]) -> str:
    """The provider, with a word on those that are none."""
    provider = exchange.get("provider")
    if not provider:
        return "nobody"
    kind, model = exchange.get("providerKind"), exchange.get("providerModel")
    name = f"{provider}/{model}" if model and kind not in NOT_MODELS else str(provider)
    if kind == "script":
        return f"{name}, a script; no model was asked"
    if kind == "replay":
        return f"{name}, a recording; no model was asked"
    return name


def outcome_of(exchange: dict[str, Any]) -> str:
    """How it ended: `ok`, `ok (script)`, `failed 502: connection refused`."""
    outcome = str(exchange.get("outcome", "")).replace("_", " ")
    kind = exchange.get("providerKind")
    if outcome == "ok":
        return f"ok ({kind})" if kind in NOT_MODELS else "ok"
    status = exchange.get("status") or 0
    said = f"{outcome} {status}" if status and status != 200 else outcome
    said += f" ({kind})" if kind in NOT_MODELS else ""
    return f"{said}: {exchange['error']}" if exchange.get("error") else said


def clock(when: datetime | None, now: datetime) -> str:
    """A time of today, or a day and its time."""
    if when is None:
        return ""
    local = when.astimezone()
    return f"{local:%H:%M:%S}" if local.date() == now.astimezone().date() else f"{local:%m-%d %H:%M}"


def box_of(exchange: dict[str, Any]) -> str:
    """The beginning of a sandbox's id, which is enough to name it."""
    return str(exchange.get("sandbox") or "").removeprefix("sb-")[:8]


def first_line(text: str) -> str:
    """Text on one line."""
    return " ".join(text.split())
