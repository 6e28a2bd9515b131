"""Variables that name the default models of agent CLIs in sandboxes."""

from __future__ import annotations

from typing import Any

import pytest

from paddock.config.llm import LlmConfig
from paddock.llm.gateway.model_catalog import ModelCatalog
from paddock.llm.gateway.model_routes import ModelRoutes
from paddock.llm.gateway.sandbox_access import DefaultModelVariables, model_client_environment
from paddock.llm.providers.http_providers import new_http_provider
from paddock.llm.wire.http_client import HttpClient

pytestmark = pytest.mark.anyio
KINDS = {"ours": "anthropic", "theirs": "openai", "third": "gemini"}


def variables_of(models: dict[str, Any], default: str | None = None) -> DefaultModelVariables:
    providers = {name: {"kind": kind, "key": "k"} for name, kind in KINDS.items()}
    settings = LlmConfig.model_validate({"providers": providers, "models": models, "list_models_every": None})
    client = HttpClient(idle_per_origin=0)
    routes = ModelRoutes(
        settings, {name: new_http_provider(name, each, client) for name, each in settings.providers.items()}
    )
    return DefaultModelVariables(ModelCatalog(settings, routes, default=default))


async def test_each_client_gets_model_of_its_api() -> None:
    models = {"gpt": "theirs/gpt-5", "claude-haiku": "ours/haiku", "claude": "ours/opus", "gem": "third/gemini-2.5-pro"}
    assert await variables_of(models).variables(()) == {
        "PADDOCK_MODEL": "gpt",
        "OPENAI_MODEL": "gpt",
        "ANTHROPIC_MODEL": "claude-haiku",
        "ANTHROPIC_SMALL_FAST_MODEL": "claude-haiku",
        "GEMINI_MODEL": "gem",
    }


async def test_clients_without_model_of_their_api_get_the_default() -> None:
    found = await variables_of({"gpt": "theirs/gpt-5", "other": "theirs/other"}).variables(())
    assert set(found.values()) == {"gpt"}


async def test_a_configured_default_is_used() -> None:
    found = await variables_of({"a": "theirs/a", "b": "theirs/b", "c": "ours/c"}, default="b").variables(())
    assert (found["PADDOCK_MODEL"], found["OPENAI_MODEL"], found["ANTHROPIC_MODEL"]) == ("b", "b", "c")


async def test_models_of_patterns_are_named() -> None:
    found = await variables_of({"claude-*": "ours/claude-*"}).variables(())
    assert found["ANTHROPIC_MODEL"].startswith("claude-") and "*" not in found["ANTHROPIC_MODEL"]
    assert "haiku" in found["ANTHROPIC_SMALL_FAST_MODEL"]


async def test_only_allowed_models_are_named() -> None:
    variables = variables_of({"a": "theirs/a", "b": "theirs/b"})
    assert set((await variables.variables(("b*",))).values()) == {"b"}
    assert await variables.variables(("c",)) == {}
    assert await variables_of({}).variables(()) == {}


async def test_variables_belong_to_their_family() -> None:
    models = await variables_of({"a": "theirs/a"}).variables(())
    env = {"OPENAI_API_KEY": "own", "GEMINI_MODEL": "mine"}
    found = model_client_environment("secret", env, models)
    assert "OPENAI_MODEL" not in found and "OPENAI_BASE_URL" not in found
    assert "GEMINI_MODEL" not in found and found["GEMINI_API_KEY"] == "secret"
    assert found["ANTHROPIC_MODEL"] == found["PADDOCK_MODEL"] == "a"
