"""Describes exchanges with models in words: tokens, model, answering provider and outcome."""

from __future__ import annotations

from datetime import datetime
from typing import Any

_SOURCE_LENGTH = 12
"""Enough of an id to identify a chat, a run or a sandbox."""
NON_MODEL_KINDS = ("script", "replay")
"""Provider kinds that answer without a model."""


def format_token_counts(exchange: dict[str, Any], *, part: bool = False) -> str:
    """Describe the tokens of one exchange or of several; with `part`, only some may be estimated."""
    usage = exchange.get("usage") or {}
    guess = "~" if exchange.get("estimated") else ""
    text = f"{guess}{usage.get('input', 0):,} in, {guess}{usage.get('output', 0):,} out"
    parts = {"cacheRead": "read from cache", "cacheWrite": "written to cache", "reasoning": "reasoning"}
    more = [f"{usage[name]:,} {words}" for name, words in parts.items() if usage.get(name)]
    if more:
        text += f" (including {', '.join(more)})"
    guessed = "partly estimated" if part else "estimated"
    return f"{text}; {guessed}, not reported by the provider" if guess else text


def format_requested_model(exchange: dict[str, Any]) -> str:
    """Return the requested model and, if different, the provider's: `fast → openai/gpt-5-mini`."""
    requested, provider = str(exchange.get("model") or "?"), exchange.get("provider")
    if not provider:
        return requested
    answered = exchange.get("providerModel")
    return f"{requested} → {provider}" if answered in (None, "", requested) else f"{requested} → {provider}/{answered}"


def format_answered_by(exchange: dict[str, Any]) -> str:
    """Return the answering provider and model, marking scripts and recordings."""
    provider = exchange.get("provider")
    if not provider:
        return "no provider"
    kind, model = exchange.get("providerKind"), exchange.get("providerModel")
    name = f"{provider}/{model}" if model and kind not in NON_MODEL_KINDS else str(provider)
    if kind == "script":
        return f"{name}, a scripted model; no real model was used"
    if kind == "replay":
        return f"{name}, a recording; no real model was used"
    return name


def format_exchange_outcome(exchange: dict[str, Any]) -> str:
    """Describe the outcome: `ok`, `ok (script)`, `failed 502: connection refused`."""
    outcome = str(exchange.get("outcome", "")).replace("_", " ")
    kind = exchange.get("providerKind")
    if outcome == "ok":
        return f"ok ({kind})" if kind in NON_MODEL_KINDS else "ok"
    status = exchange.get("status") or 0
    text = f"{outcome} {status}" if status and status != 200 else outcome
    text += f" ({kind})" if kind in NON_MODEL_KINDS else ""
    return f"{text}: {exchange['error']}" if exchange.get("error") else text


def format_clock_time(when: datetime | None, now: datetime) -> str:
    """Format a time of today as a time, an earlier one with its date."""
    if when is None:
        return ""
    local = when.astimezone()
    return f"{local:%H:%M:%S}" if local.date() == now.astimezone().date() else f"{local:%m-%d %H:%M}"


def format_exchange_source(exchange: dict[str, Any]) -> str:
    """Return the origin of a request: `chat 3f2a1b0`, `run …` or `sandbox …`; empty for other programs."""
    for name, kind in (("session", "chat"), ("run", "run"), ("sandbox", "sandbox")):
        if exchange.get(name):
            return f"{kind} {str(exchange[name]).partition('-')[2]}"[:_SOURCE_LENGTH]
    return ""


def join_text_lines(text: str) -> str:
    """Join the lines of a text into one."""
    return " ".join(text.split())
