"""A model for servers that have none: a script, which is told as one wherever it answers."""

from __future__ import annotations

from pathlib import Path

from paddock.config.llm import LlmConfig, ModelConfig, ProviderConfig

DEMO = "demo"
"""The name of the model, and of its provider."""
SCENARIO = Path(__file__).parent / "demo.yaml"
PROMPTS = {
    "en": "Which of these five towns had the fastest growing number of visitors? Write a short report with a chart.",
    "zh": "这五个城镇中，哪一个的游客增长最快？请写一份带图表的简短报告。",  # noqa: RUF001
}
"""What the scenario answers to, by language."""


def with_demo(settings: LlmConfig) -> LlmConfig:
    """The settings, with the script as a model if there is no provider at all and nobody has said not to."""
    if settings.providers or settings.models or not settings.demo:
        return settings
    return settings.model_copy(
        update={
            "providers": {DEMO: ProviderConfig(kind="script", file=SCENARIO)},
            "models": {DEMO: ModelConfig(provider=DEMO)},
        }
    )


def only_demo(settings: LlmConfig) -> bool:
    """Whether nobody answers but the script that Paddock brings."""
    return all(is_demo(provider) for provider in settings.providers.values())


def is_demo(provider: ProviderConfig) -> bool:
    """Return whether a provider is the script that Paddock brings."""
    return provider.file == SCENARIO
