"""Scripts that answer in the place of a model, each for one run and for nobody else."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from paddock.config.llm import LlmConfig
from paddock.errors import InvalidInput, Unavailable
from paddock.llm.exchange import Caller
from paddock.llm.formats.registry import FORMATS
from paddock.llm.providers.http import make_http
from paddock.llm.routes import ModelNotFound, Routes
from paddock.llm.scripted import check_script, script_name
from paddock.llm.usage import Ledger
from paddock.llm.wire.client import Client
from paddock.store.database import Store

from .archive_cases import an_exchange
from .script_cases import answer_to, ask, begun, text_of

pytestmark = pytest.mark.anyio
SAYS_HELLO = "turns: [{say: Hello.}]"
OWNER = Caller("acme", "key-1", "sb-1", "run-1")


def routes(**settings: object) -> Routes:
    found = LlmConfig.model_validate(settings)
    return Routes(found, {name: make_http(name, each, Client()) for name, each in found.providers.items()})


@pytest.mark.parametrize("format", sorted(FORMATS))
async def test_a_run_is_answered_by_its_script_in_every_format(format: str) -> None:
    known = routes()
    known.scripted.add("run-1", SAYS_HELLO, "acme")
    route = known.resolve("script-run-1", OWNER)
    assert (route.provider.kind, route.model, route.plain) == ("script", "script-run-1", True)
    assert text_of(await answer_to(route.provider, begun(), format, caller=OWNER)) == "Hello."
    assert known.own_script(OWNER) == "script-run-1"


async def test_many_may_ask_at_once_and_one_may_leave() -> None:
    known = routes()
    known.scripted.add("run-1", SAYS_HELLO)
    provider = known.resolve("script-run-1", OWNER).provider
    leaving = asyncio.create_task(provider.send(ask(begun())))
    await asyncio.sleep(0)
    leaving.cancel()
    answers = await asyncio.gather(*(answer_to(provider, begun(str(number))) for number in range(5)))
    assert {text_of(answer) for answer in answers} == {"Hello."}
    with pytest.raises(asyncio.CancelledError):
        await leaving


@pytest.mark.parametrize(
    "caller",
    [
        None,
        Caller("acme", "key-1"),
        Caller("acme", "key-1", "sb-1", "run-2"),
        Caller("acme", "key-1", "sb-1", "1"),
        Caller("somebody else", "key-1", "sb-1", "run-1"),
    ],
)
def test_nobody_else_is(caller: Caller | None) -> None:
    known = routes()
    known.scripted.add("run-1", SAYS_HELLO, "acme")
    with pytest.raises(ModelNotFound, match=r"There is no model 'script-run-1'\. Models: none"):
        known.resolve("script-run-1", caller)
    assert known.own_script(caller) is None


@pytest.mark.parametrize(
    ("asked", "key"),
    [
        ("claude-sonnet-4-5", "set ANTHROPIC_API_KEY before the server starts"),
        ("gpt-5", "set OPENAI_API_KEY before"),
        ("gemini-2.5-pro", "set GEMINI_API_KEY before"),
        ("qwen3-coder", "set DASHSCOPE_API_KEY before"),
        ("glm-4.6", "set ZHIPUAI_API_KEY before"),
        ("fast", "set a provider's key, such as ANTHROPIC_API_KEY, before"),
    ],
)
def test_a_server_without_models_says_how_to_have_some(asked: str, key: str) -> None:
    with pytest.raises(ModelNotFound, match=f"Models: none; {key}.* llm.providers .*connect-a-provider.md"):
        routes().resolve(asked)


def test_a_script_is_gone_when_its_run_is() -> None:
    known = routes()
    known.scripted.add("run-1", SAYS_HELLO, "acme")
    first = known.resolve("script-run-1", OWNER)
    known.scripted.add("run-1", SAYS_HELLO, "acme")
    again = known.resolve("script-run-1", OWNER)
    assert again.provider is first.provider and again.circuit is first.circuit  # It goes on where it was.
    known.scripted.add("run-1", "turns: [{say: Bye.}]", "acme")
    assert known.resolve("script-run-1", OWNER).provider is not first.provider
    known.scripted.remove("run-1")
    known.scripted.remove("run-1")
    with pytest.raises(Unavailable):
        known.resolve("script-run-1", OWNER)


def test_a_run_is_told_to_ask_again_while_a_new_server_has_no_script_of_it_yet() -> None:
    known = routes()
    with pytest.raises(Unavailable, match="ask again"):
        known.resolve("script-run-1", OWNER)
    with pytest.raises(ModelNotFound):
        known.resolve("script-run-2", OWNER)


def test_lists_of_models_have_none_of_them() -> None:
    known = routes(providers={"one": {"kind": "openai"}}, models={"fast": "one/m", "script-*": "one/*"})
    for number in range(100):
        known.scripted.add(f"run-{number}", SAYS_HELLO)
    # What a server's own pattern serves, others still get.
    assert known.resolve("script-run-1").provider.name == "one"
    assert known.resolve("script-run-1", OWNER).provider.kind == "script"


async def test_usage_counts_them_as_one_model(tmp_path: Path) -> None:
    known = routes()
    async with await Store.open(tmp_path / "p.db") as store:
        ledger = await Ledger.open(store)
        for run in ("run-1", "run-2"):
            known.scripted.add(run, SAYS_HELLO)
            route = known.resolve(script_name(run), Caller("acme", "key-1", None, run))
            ledger.count(an_exchange(tenant="acme", route=route.name, model=script_name(run)))
        rows = await ledger.query("acme", ["model"])
        await ledger.close()
    assert [(row.model, row.tally.requests) for row in rows] == [("script of a run", 2)]


async def test_what_is_no_scenario_is_told_where_and_why() -> None:
    with pytest.raises(InvalidInput, match=r"script:1: turns\.0\.sya: no such action; did you mean 'say'"):
        check_script("turns: [{sya: Hello.}]")
    known = routes()
    known.scripted.add("run-1", "turns: [{sya: Hello.}]")
    provider = known.resolve("script-run-1", OWNER).provider
    for _ in range(2):
        with pytest.raises(InvalidInput, match="did you mean 'say'"):
            await provider.send(ask(begun()))
