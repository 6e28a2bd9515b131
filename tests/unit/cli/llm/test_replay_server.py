"""A recording answers for every model; missing answers come from the configured model."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.cli.llm.replay_server import build_replay_config
from paddock.cli.output.errors import CliError
from paddock.config.llm import LlmConfig

CONFIGURED = LlmConfig.model_validate(
    {
        "providers": {"openai": {"kind": "openai", "key": "sk-1"}, "other": {"kind": "anthropic"}},
        "models": {
            "fast": {"provider": "openai", "model": "gpt-5-mini", "fallbacks": ["spare"]},
            "spare": "other/claude",
            "plain": "openai",
            "gpt-*": "openai/gpt-*",
            "*": "other/*",
        },
    }
)


def settings(miss: str | None) -> LlmConfig:
    configured = CONFIGURED if miss else None
    return build_replay_config(Path("run.jsonl"), match="exact", timing="instant", miss=miss, configured=configured)


def test_without_a_miss_model_only_the_recording_answers() -> None:
    made = settings(None)
    assert list(made.models) == ["*"] and list(made.providers) == ["recording"]
    assert made.providers["recording"].miss is None


@pytest.mark.parametrize(
    ("wanted", "provider", "model"),
    [
        ("fast", "openai", "gpt-5-mini"),
        ("plain", "openai", "plain"),
        ("gpt-5", "openai", "gpt-5"),
        ("claude-x", "anthropic", "claude-x"),
    ],
)
def test_a_miss_uses_the_configured_model(wanted: str, provider: str, model: str) -> None:
    made = settings(wanted)
    name = made.providers["recording"].miss
    assert name is not None and name != wanted
    live = made.models[name]
    assert (made.providers[live.provider].kind, live.model, live.fallbacks) == (provider, model, ())
    # Requests for that model still go to the recording first.
    assert wanted not in made.models


def test_unconfigured_miss_model_is_an_error() -> None:
    with pytest.raises(CliError, match="model fast is not configured; configured models: none"):
        build_replay_config(Path("a"), match="exact", timing="instant", miss="fast", configured=LlmConfig())
