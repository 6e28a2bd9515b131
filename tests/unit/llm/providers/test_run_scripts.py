"""Scripts that answer in place of a model, each for a single run."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from paddock.config.llm import LlmConfig
from paddock.errors import InvalidInput, Unavailable
from paddock.llm.exchange import ModelCaller
from paddock.llm.formats.registry import FORMATS
from paddock.llm.gateway.model_routes import ModelNotFound, ModelRoutes
from paddock.llm.metering.usage_ledger import UsageLedger
from paddock.llm.providers.http_providers import new_http_provider
from paddock.llm.providers.run_scripts import script_model_name
from paddock.llm.wire.http_client import HttpClient
from paddock.store.database import Store

from ..archive.exchange_samples import an_exchange
from ..scripted_model.script_helpers import ask, get_whole_answer, start_conversation, text_of

pytestmark = pytest.mark.anyio
HELLO_SCRIPT = "turns: [{say: Hello.}]"
OWNER = ModelCaller("acme", "key-1", "sb-1", "run-1")


def routes(**settings: object) -> ModelRoutes:
    found = LlmConfig.model_validate(settings)
    return ModelRoutes(
        found, {name: new_http_provider(name, each, HttpClient()) for name, each in found.providers.items()}
    )


@pytest.mark.parametrize("format", sorted(FORMATS))
async def test_a_run_is_answered_by_its_script_in_every_format(format: str) -> None:
    known = routes()
    known.run_scripts.add("run-1", HELLO_SCRIPT, "acme")
    route = known.resolve("script-run-1", OWNER)
    assert (route.provider.kind, route.model, route.passes_unchanged) == ("script", "script-run-1", True)
    assert text_of(await get_whole_answer(route.provider, start_conversation(), format, caller=OWNER)) == "Hello."
    assert known.find_run_script(OWNER) == "script-run-1"


async def test_concurrent_first_requests_survive_a_cancellation() -> None:
    known = routes()
    known.run_scripts.add("run-1", HELLO_SCRIPT)
    provider = known.resolve("script-run-1", OWNER).provider
    leaving = asyncio.create_task(provider.send(ask(start_conversation())))
    await asyncio.sleep(0)
    leaving.cancel()
    answers = await asyncio.gather(
        *(get_whole_answer(provider, start_conversation(str(number))) for number in range(5))
    )
    assert {text_of(answer) for answer in answers} == {"Hello."}
    with pytest.raises(asyncio.CancelledError):
        await leaving


@pytest.mark.parametrize(
    "caller",
    [
        None,
        ModelCaller("acme", "key-1"),
        ModelCaller("acme", "key-1", "sb-1", "run-2"),
        ModelCaller("acme", "key-1", "sb-1", "1"),
        ModelCaller("somebody else", "key-1", "sb-1", "run-1"),
    ],
)
def test_other_runs_and_tenants_get_no_answer(caller: ModelCaller | None) -> None:
    known = routes()
    known.run_scripts.add("run-1", HELLO_SCRIPT, "acme")
    with pytest.raises(ModelNotFound, match=r"There is no model 'script-run-1'\. Models: none"):
        known.resolve("script-run-1", caller)
    assert known.find_run_script(caller) is None


@pytest.mark.parametrize(
    ("requested", "key"),
    [
        ("claude-sonnet-4-5", "set ANTHROPIC_API_KEY before the server starts"),
        ("gpt-5", "set OPENAI_API_KEY before"),
        ("gemini-2.5-pro", "set GEMINI_API_KEY before"),
        ("qwen3-coder", "set DASHSCOPE_API_KEY before"),
        ("glm-4.6", "set ZHIPUAI_API_KEY before"),
        ("fast", "set a provider's key, such as ANTHROPIC_API_KEY, before"),
    ],
)
def test_error_without_models_explains_configuration(requested: str, key: str) -> None:
    with pytest.raises(ModelNotFound, match=f"Models: none; {key}.* llm.providers .*paddock llm list"):
        routes().resolve(requested)


def test_script_is_removed_with_its_run() -> None:
    known = routes()
    known.run_scripts.add("run-1", HELLO_SCRIPT, "acme")
    first = known.resolve("script-run-1", OWNER)
    known.run_scripts.add("run-1", HELLO_SCRIPT, "acme")
    again = known.resolve("script-run-1", OWNER)
    assert again.provider is first.provider and again.circuit is first.circuit  # The script continues at its position.
    known.run_scripts.add("run-1", "turns: [{say: Bye.}]", "acme")
    assert known.resolve("script-run-1", OWNER).provider is not first.provider
    known.run_scripts.remove("run-1")
    known.run_scripts.remove("run-1")
    with pytest.raises(Unavailable):
        known.resolve("script-run-1", OWNER)


def test_run_gets_unavailable_until_its_script_is_added() -> None:
    known = routes()
    with pytest.raises(Unavailable, match="try again"):
        known.resolve("script-run-1", OWNER)
    with pytest.raises(ModelNotFound):
        known.resolve("script-run-2", OWNER)


def test_model_lists_do_not_contain_run_scripts() -> None:
    known = routes(providers={"one": {"kind": "openai"}}, models={"fast": "one/m", "script-*": "one/*"})
    for number in range(100):
        known.run_scripts.add(f"run-{number}", HELLO_SCRIPT)
    # Other callers still get the models of a server's own pattern.
    assert known.resolve("script-run-1").provider.name == "one"
    assert known.resolve("script-run-1", OWNER).provider.kind == "script"


async def test_run_scripts_count_as_one_model(tmp_path: Path) -> None:
    known = routes()
    async with await Store.open(tmp_path / "p.db") as store:
        ledger = await UsageLedger.open(store)
        for run in ("run-1", "run-2"):
            known.run_scripts.add(run, HELLO_SCRIPT)
            route = known.resolve(script_model_name(run), ModelCaller("acme", "key-1", None, run))
            ledger.count_exchange(an_exchange(tenant="acme", route=route.name, model=script_model_name(run)))
        rows = await ledger.query("acme", ["model"])
        await ledger.close()
    assert [(row.model, row.tally.requests) for row in rows] == [("script of a run", 2)]


async def test_invalid_script_is_refused_with_line_and_reason() -> None:
    known = routes()
    known.run_scripts.add("run-1", "turns: [{sya: Hello.}]")
    provider = known.resolve("script-run-1", OWNER).provider
    for _ in range(2):
        with pytest.raises(InvalidInput, match=r"script:1: turns\.0\.sya: no such action; did you mean 'say'"):
            await provider.send(ask(start_conversation()))
