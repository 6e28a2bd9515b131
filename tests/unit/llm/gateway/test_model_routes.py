"""Which provider answers for a model's name."""

from __future__ import annotations

import pytest

from paddock.config.llm import LlmConfig
from paddock.llm.gateway.model_routes import ModelNotFound, ModelRoutes
from paddock.llm.providers.circuit_breaker import FAILURE_THRESHOLD
from paddock.llm.providers.http_providers import new_http_provider
from paddock.llm.wire.http_client import HttpClient


def routes(*, direct: bool = False) -> ModelRoutes:
    settings = LlmConfig.model_validate(
        {
            "providers": {"one": {"kind": "openai"}, "two": {"kind": "anthropic"}},
            "models": {
                "fast": {"provider": "one", "model": "m-1", "fallbacks": ["claude-x"]},
                "claude-*": "two/claude-*",
                "claude-old-*": "two/old-*",
                "*": "one/*",
            },
            "direct": direct,
        }
    )
    return ModelRoutes(
        settings, {name: new_http_provider(name, each, HttpClient()) for name, each in settings.providers.items()}
    )


@pytest.mark.parametrize(
    ("requested", "provider", "model"),
    [
        ("fast", "one", "m-1"),
        ("claude-sonnet", "two", "claude-sonnet"),
        ("claude-old-2", "two", "old-2"),
        ("anything", "one", "anything"),
        ("claude-", "two", "claude-"),
    ],
)
def test_the_longest_match_wins(requested: str, provider: str, model: str) -> None:
    route = routes().resolve(requested)
    assert (route.provider.name, route.model) == (provider, model)


def test_fallback_may_match_a_pattern() -> None:
    known = routes()
    assert [each.model for each in known.iter_fallbacks(known.resolve("fast"))] == ["claude-x"]


def test_provider_model_names_need_the_direct_setting() -> None:
    settings = LlmConfig.model_validate({"providers": {"one": {"kind": "openai"}}, "models": {"a": "one/b"}})
    providers = {"one": new_http_provider("one", settings.providers["one"], HttpClient())}
    with pytest.raises(ModelNotFound, match="Models: a"):
        ModelRoutes(settings, providers).resolve("one/secret")
    allowed = ModelRoutes(settings.model_copy(update={"direct": True}), providers)
    assert allowed.resolve("one/secret").model == "secret"


def test_circuit_breakers_are_separate_and_bounded() -> None:
    known = routes()
    first = known.resolve("made-up-0").circuit
    assert known.resolve("made-up-0").circuit is first is not known.resolve("made-up-1").circuit
    for number in range(3000):
        known.resolve(f"made-up-{number}")
    assert known.resolve("made-up-0").circuit is not first


def test_open_circuits_are_counted_by_provider() -> None:
    known = routes()
    for name in ("claude-x", "claude-y"):
        circuit = known.resolve(name).circuit
        for _ in range(FAILURE_THRESHOLD):
            circuit.record_failure()
    assert known.open_circuits() == {"one": 0, "two": 2}
