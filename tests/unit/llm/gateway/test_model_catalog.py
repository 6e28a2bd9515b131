"""Which models are offered by name: what providers list, what patterns stand for, and which one chats use."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from paddock.config.llm import LlmConfig
from paddock.errors import InvalidInput
from paddock.llm.formats.model_list import ModelListEntry
from paddock.llm.gateway.chat_model_ranking import rank_chat_models
from paddock.llm.gateway.model_catalog import MAX_MODELS, RETRY_SECONDS, ModelCatalog
from paddock.llm.gateway.model_routes import ModelNotFound, ModelRoutes
from paddock.llm.providers.http_providers import new_http_provider
from paddock.llm.wire.http_client import HttpClient
from tests.support.fake_provider import FakeProvider, PlannedResponse, json_response, run_fake_provider

pytestmark = pytest.mark.anyio


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def server() -> Iterator[FakeProvider]:
    with run_fake_provider() as made:
        yield made


def models_answer(*names: str, **more: Any) -> PlannedResponse:
    return json_response({"object": "list", "data": [{"id": name, "created": 1} for name in names]}, **more)


def catalog_of(url: str, models: dict[str, Any], clock: Clock | None = None, **more: Any) -> ModelCatalog:
    provider = {"kind": "openai", "base_url": f"{url}/v1", "key": "sk-1", **more}
    settings = LlmConfig.model_validate({"providers": {"one": provider}, "models": models})
    client = HttpClient(idle_per_origin=0)
    routes = ModelRoutes(
        settings, {name: new_http_provider(name, each, client) for name, each in settings.providers.items()}
    )
    return ModelCatalog(settings, routes, clock=clock or Clock())


def names(catalog: ModelCatalog) -> list[str]:
    return [model.name for model in catalog.models()]


async def until_fetched(catalog: ModelCatalog) -> None:
    async with asyncio.timeout(10):
        while any(each.fetch is not None for each in catalog._lists.values()):
            await asyncio.sleep(0)


async def test_patterns_expand_to_the_providers_list(server: FakeProvider) -> None:
    server.always_respond(models_answer("gpt-5", "gpt-5-mini", "o3", "text-embedding-3-small", "whisper-1"))
    catalog = catalog_of(
        server.url, {"quick": "one/gpt-5-mini", "gpt-5": "one/o3", "gpt-*": "one", "my/*": "one/*", "fixed-*": "one/m"}
    )
    await catalog.refresh()
    found = {model.name: model.model for model in catalog.models()}
    # A model with its own configured name is not listed again for a matching pattern.
    assert found == {
        "quick": "gpt-5-mini",
        "gpt-5": "o3",
        "gpt-5-mini": "gpt-5-mini",
        "my/gpt-5": "gpt-5",
        "my/gpt-5-mini": "gpt-5-mini",
        "my/o3": "o3",
    }
    assert catalog.default() == "quick"
    await catalog.close()


async def test_error_for_an_unknown_model_lists_known_models(server: FakeProvider) -> None:
    server.always_respond(models_answer("gpt-5", "gpt-5-mini"))
    catalog = catalog_of(server.url, {"gpt-*": "one", "o1*": "one", "own-*": "one/fixed"})
    await catalog.refresh()
    with pytest.raises(ModelNotFound, match=r"'demo'\. Models: gpt-5, gpt-5-mini, own-\*\.") as caught:
        catalog._routes.resolve("demo")
    assert caught.value.params == {"model": "demo", "known": "gpt-5, gpt-5-mini, own-*"}
    await catalog.close()


async def test_error_for_an_unknown_model_lists_configured_names_first(server: FakeProvider) -> None:
    server.always_respond(models_answer(*(f"gpt-{number:02}" for number in range(30))))
    catalog = catalog_of(server.url, {"gpt-*": "one", "seldom": "one"})
    await catalog.refresh()
    with pytest.raises(ModelNotFound, match=r"Models: seldom, gpt-00, gpt-01, .*, gpt-18, …\."):
        catalog._routes.resolve("nobody-knows-it")
    await catalog.close()


async def test_model_list_is_cached_and_refreshed_in_the_background(server: FakeProvider) -> None:
    clock = Clock()
    server.respond_in_sequence(models_answer("gpt-5"), models_answer("gpt-6"), json_response({}, status=500))
    catalog = catalog_of(server.url, {"gpt-*": "one/gpt-*"}, clock)
    await asyncio.gather(catalog.refresh(), catalog.refresh())
    await catalog.refresh()
    assert names(catalog) == ["gpt-5"] and len(server.received) == 1
    clock.now += 3601
    await catalog.refresh()
    assert names(catalog) == ["gpt-5"], "readers do not wait for a list that is only old"
    await until_fetched(catalog)
    assert names(catalog) == ["gpt-6"]
    clock.now += 3601
    await catalog.refresh()
    await until_fetched(catalog)
    assert names(catalog) == ["gpt-6"] and "status 500" in str(catalog.model_list_problem("one"))
    clock.now += RETRY_SECONDS - 1
    await catalog.refresh()
    assert len(server.received) == 3
    clock.now += 2
    await catalog.refresh()
    await until_fetched(catalog)
    assert len(server.received) == 4
    await catalog.close()


@pytest.mark.parametrize(
    "answer",
    [
        json_response({"error": "no"}, status=404),
        json_response([1]),
        json_response({"data": "?"}),
        json_response({"data": [{"id": 7}, "x", {"id": "text-embedding-3-small"}]}),
        PlannedResponse(pieces=[b"<html>"]),
        PlannedResponse(raw=b"nonsense\r\n\r\n"),
    ],
)
async def test_well_known_names_replace_a_missing_model_list(server: FakeProvider, answer: PlannedResponse) -> None:
    server.always_respond(answer)
    catalog = catalog_of(server.url, {"gpt-*": "one/gpt-*", "claude-*": "one"})
    await catalog.refresh()
    assert {"gpt-5.1", "gpt-5-mini", "claude-sonnet-4-5"} <= set(names(catalog))
    assert catalog.default() == "gpt-5.1" and catalog.model_list_problem("one")
    assert catalog._routes.key_health.refused_at("one") is None
    assert all(model.well_known for model in catalog.models())
    await catalog.close()


async def test_provider_is_unreached_until_a_list_or_an_answer(server: FakeProvider) -> None:
    server.always_respond(json_response({"error": "unknown path /models"}, status=404))
    clock = Clock()
    catalog = catalog_of(server.url, {"gpt-*": "one/gpt-*"}, clock, base_url=server.url)
    assert not catalog.is_unreachable("one"), "nothing is known yet"
    await catalog.refresh()
    assert catalog.is_unreachable("one")
    advice = f"check its address {server.url}, which usually ends in /v1"
    assert advice in str(catalog.model_list_problem("one"))
    catalog._routes.answering_providers.add("one")
    assert not catalog.is_unreachable("one"), "some providers have no list"

    server.always_respond(PlannedResponse(raw=b"nonsense\r\n\r\n"))
    clock.now += RETRY_SECONDS + 1
    await catalog.refresh()
    await until_fetched(catalog)
    assert catalog.is_unreachable("one")
    server.always_respond(models_answer("gpt-6"))
    clock.now += RETRY_SECONDS + 1
    await catalog.refresh()
    await until_fetched(catalog)
    assert not catalog.is_unreachable("one") and not any(model.well_known for model in catalog.models())
    await catalog.close()


async def test_an_empty_list_counts_as_reached(server: FakeProvider) -> None:
    server.always_respond(models_answer())
    catalog = catalog_of(server.url, {"gpt-*": "one/gpt-*"})
    await catalog.refresh()
    assert catalog.model_list_problem("one") == "its list has no chat model" and not catalog.is_unreachable("one")
    await catalog.close()


async def test_readers_wait_only_a_moment_for_a_slow_provider(server: FakeProvider) -> None:
    server.always_respond(models_answer("gpt-5", before=30))
    catalog = catalog_of(server.url, {"gpt-*": "one/gpt-*"})
    async with asyncio.timeout(5):
        await catalog.refresh(wait=0.1)
        assert "gpt-5-mini" in names(catalog)
        await catalog.close()


async def test_a_huge_list_is_bounded(server: FakeProvider) -> None:
    server.always_respond(models_answer(*(f"gpt-{number}-x" for number in range(3 * MAX_MODELS))))
    catalog = catalog_of(server.url, {"gpt-*": "one/gpt-*"})
    await catalog.refresh()
    assert len(names(catalog)) == MAX_MODELS
    await catalog.close()


async def test_the_configured_default_of_a_provider_wins(server: FakeProvider) -> None:
    server.always_respond(models_answer("gpt-5", "gpt-5-mini"))
    for chosen in ("gpt-5-mini", "gpt-private"):
        catalog = catalog_of(server.url, {"gpt-*": "one/gpt-*"}, default_model=chosen)
        await catalog.refresh()
        assert catalog.default() == chosen
        await catalog.close()


async def test_patterns_are_not_requestable_models(server: FakeProvider) -> None:
    catalog = catalog_of(server.url, {"gpt-*": "one/gpt-*", "*": "one/*"})
    for name in ("gpt-*", "*", "gpt-5*", "made*up"):
        with pytest.raises(InvalidInput, match="is a pattern"):
            catalog._routes.resolve(name)
    with pytest.raises(ValueError, match="is a pattern; name one of its models"):
        catalog_of(server.url, {"gpt-*": "one/gpt-*", "fast": {"provider": "one", "fallbacks": ["gpt-*"]}})


def test_pattern_without_model_forwards_the_whole_name() -> None:
    known = catalog_of("http://127.0.0.1:9", {"gpt-*": "one", "my-*": "one/*", "old-*": "one/new-*"})._routes
    resolved = {name: known.resolve(name).model for name in ("gpt-5", "my-gpt-5", "old-1")}
    assert resolved == {"gpt-5": "gpt-5", "my-gpt-5": "gpt-5", "old-1": "new-1"}


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ("gpt-4o gpt-5 gpt-5-mini gpt-5-pro gpt-4o-audio-preview", "gpt-5 gpt-4o gpt-5-mini"),
        ("gpt-5-mini gpt-4o gpt-4o-2024-11-20", "gpt-5-mini gpt-4o gpt-4o-2024-11-20"),
        ("claude-opus-4-5-20251101 claude-sonnet-4-20250514 claude-sonnet-4-5-20250929",
         "claude-sonnet-4-5-20250929 claude-opus-4-5-20251101 claude-sonnet-4-20250514"),
        ("gemini-3-pro-preview gemini-2.0-flash gemini-2.5-flash gemini-2.5-flash-image",
         "gemini-2.5-flash gemini-2.0-flash gemini-3-pro-preview"),
        ("qwen-max qwen-plus qwen-plus-2025-01-25 qwen3-omni-flash", "qwen-plus qwen-max qwen-plus-2025-01-25"),
        ("glm-4.5-air glm-4.6 glm-4.5 cogview-4", "glm-4.6 glm-4.5 glm-4.5-air"),
        ("qwen3:8b nomic-embed-text llama3.2:3b", "llama3.2:3b qwen3:8b"),
    ],
)  # fmt: skip
def test_chat_models_are_ranked_best_default_first(listed: str, expected: str) -> None:
    assert [model.id for model in rank_chat_models(map(ModelListEntry, listed.split()))] == expected.split()
