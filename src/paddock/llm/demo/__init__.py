"""The built-in scripted model `demo`, offered when no provider is configured."""

from __future__ import annotations

from pathlib import Path

from paddock.config.llm import LlmConfig, ModelConfig, ProviderConfig

DEMO_MODEL = "demo"
"""Name of the model and of its provider."""
DEMO_SCRIPT = Path(__file__).parent / "demo.yaml"
DEMO_PROMPTS = {
    "en": "Which of these five towns had the fastest growing number of visitors? Write a short report with a chart.",
    "zh": "这五个城镇中，哪一个的游客增长最快？请写一份带图表的简短报告。",  # noqa: RUF001
}
"""Prompts that the script answers, by language."""


def add_demo_model(settings: LlmConfig) -> LlmConfig:
    """Add the demo model unless providers or models are configured or it is disabled."""
    if settings.providers or settings.models or not settings.demo:
        return settings
    return settings.model_copy(
        update={
            "providers": {DEMO_MODEL: ProviderConfig(kind="script", file=DEMO_SCRIPT)},
            "models": {DEMO_MODEL: ModelConfig(provider=DEMO_MODEL)},
        }
    )


def has_only_demo_model(settings: LlmConfig) -> bool:
    """Return whether the demo model is the only provider."""
    return all(is_demo_provider(provider) for provider in settings.providers.values())


def is_demo_provider(provider: ProviderConfig) -> bool:
    """Return whether a provider is the built-in demo model."""
    return provider.file == DEMO_SCRIPT
