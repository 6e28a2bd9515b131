"""The LangGraph engine, with its checkpoints in a real database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import sentinel

import pytest
from langsmith.utils import tracing_is_enabled

from paddock.agents.engines.base import Continue, Done, Paused
from paddock.agents.engines.conformance import EngineConformance
from paddock.agents.engines.langgraph import LangGraphEngine
from paddock.agents.engines.registry import Means
from paddock.agents.engines.rehearsal import Answer, Question, Rehearsal, Wanted, tool, words
from paddock.config.schema import Config
from paddock.errors import Unavailable
from paddock.model.sessions import Message
from paddock.store.checkpoints import CheckpointStore
from paddock.store.database import Store

SOON = 20.0


async def echo(arguments: Mapping[str, Any]) -> str:
    return f"ran {arguments}"


@asynccontextmanager
async def engine_in(directory: Path) -> AsyncIterator[LangGraphEngine]:
    async with await Store.open(directory / "paddock.db") as store:
        yield engine_of(store)


def engine_of(store: Any) -> LangGraphEngine:
    absent: Any = sentinel.not_needed
    return LangGraphEngine(Means(Config(), store, absent, absent, absent, absent, absent))


class TestLangGraph(EngineConformance):
    pass


@pytest.fixture
def engine(tmp_path: Path) -> Callable[[], AbstractAsyncContextManager[LangGraphEngine]]:
    return lambda: engine_in(tmp_path)


@pytest.mark.anyio
async def test_only_our_tools_and_helpers_are_offered(tmp_path: Path) -> None:
    turn = Rehearsal(["Hello."], tools=[tool("look", echo)], prompt="You are kind.")
    async with engine_in(tmp_path) as engine:
        await engine.run(turn, turn.says("Hi!"))
    (question,) = turn.records.questions
    assert set(question.tools) == {"look", "task"}
    assert question.messages == [
        {"role": "system", "content": "You are kind."},
        {"role": "user", "content": "Hi!"},
    ]


@pytest.mark.anyio
async def test_it_stops_while_persons_decide_and_goes_on_with_each_decision(tmp_path: Path) -> None:
    both = Answer(calls=[Wanted("write", {"n": 1}), Wanted("write", {"n": 2}), Wanted("look")])
    turn = Rehearsal([both, "Done."], tools=[tool("write", echo), tool("look", echo)], ask=["write"])
    async with engine_in(tmp_path) as engine, asyncio.timeout(SOON):
        assert await engine.run(turn, turn.says("Write!")) == Paused()
        assert (len(turn.pending), turn.runs("look"), turn.runs("write")) == (2, [{}], [])
        second = await turn.decide(turn.pending[1])
        assert await engine.run(turn, turn.decisions(second)) == Paused()
        assert turn.runs("write") == [{"n": 2}]
        first = await turn.decide(turn.pending[0], "edit", arguments={"n": 3})
        assert await engine.run(turn, turn.decisions(first)) == Done()
    assert turn.runs("write") == [{"n": 2}, {"n": 3}]
    assert turn.runs("look") == [{}]
    assert len(turn.records.questions) == 2


@pytest.mark.anyio
async def test_what_is_written_while_persons_decide_is_read_afterwards(tmp_path: Path) -> None:
    turn = Rehearsal([Answer(calls=[Wanted("write")]), "Done."], tools=[tool("write", echo)], ask=["write"])
    async with engine_in(tmp_path) as engine, asyncio.timeout(SOON):
        await engine.run(turn, turn.says("Write!"))
        turn.write("In English.")
        assert await engine.run(turn, Continue()) == Paused()
        assert await engine.run(turn, turn.decisions(await turn.decide(turn.pending[0]))) == Done()
    assert [words(message) for message in turn.records.questions[-1].messages[-2:]] == ["ran {}", "In English."]


@pytest.mark.anyio
async def test_a_turn_that_is_done_goes_on_when_somebody_asks_for_it(tmp_path: Path) -> None:
    turn = Rehearsal(["One.", "Two."])
    async with engine_in(tmp_path) as engine, asyncio.timeout(SOON):
        await engine.run(turn, turn.says("Count!"))
        assert await engine.run(turn.reborn(), Continue()) == Done()
    said = [words(message) for message in turn.records.questions[-1].messages[1:]]
    assert said[:2] == ["Count!", "One."]
    assert said[2].startswith("[note] ")
    assert turn.records.messages[-1].text == "Two."


@pytest.mark.anyio
async def test_turns_of_another_engine_are_caught_up_with(tmp_path: Path) -> None:
    turn = Rehearsal(["One."])
    async with engine_in(tmp_path) as engine, asyncio.timeout(SOON):
        await engine.run(turn, turn.says("Count!"))
        other = turn.following(["Two."])
        other.says("And then?")
        async with other.speaking() as speech:
            await speech.text("Two, says another.")
            await speech.finish()
        third = other.following(["Three."])
        await engine.run(third, third.says("And then?"))
    said = [words(message) for message in third.records.questions[-1].messages[1:]]
    assert said == ["Count!", "One.", "And then?", "Two, says another.", "And then?"]


@pytest.mark.anyio
async def test_what_helpers_said_is_not_in_a_fork(tmp_path: Path) -> None:
    turn = Rehearsal(["One."])
    first = turn.says("Count!")
    helper = Message(**{**first.message.model_dump(), "id": "msg_h", "role": "assistant", "by": "general-purpose"})
    turn.records.messages.append(helper)
    async with engine_in(tmp_path) as engine, asyncio.timeout(SOON):
        await engine.run(turn, first)
        fork = turn.forked(["Two."])
        await engine.run(fork, fork.says("And then?"))
    assert [words(message) for message in fork.records.questions[-1].messages[1:]] == ["Count!", "One.", "And then?"]


@pytest.mark.anyio
async def test_arguments_that_checkpoints_cannot_hold(tmp_path: Path) -> None:
    odd = {"large": 2**80, "half": "\ud83d", "deep": [{"a": [1.5, None, True]}], "wide": "ü€😀"}
    script: list[str | Answer] = [Answer(calls=[Wanted("write", odd)]), "Done.", "Again."]
    turn = Rehearsal(script, tools=[tool("write", echo)], ask=["write"])
    async with engine_in(tmp_path) as engine, asyncio.timeout(SOON):
        await engine.run(turn, turn.says("Write!"))
        await turn.decide(turn.pending[0])
        assert await engine.run(turn.reborn(), Continue(cause="restart")) == Done()
        again = turn.following()
        assert await engine.run(again, again.says("Again!")) == Done()
    assert turn.runs("write") == [odd]


@pytest.mark.anyio
async def test_nothing_is_left_behind_when_it_is_cancelled(tmp_path: Path) -> None:
    async def wait(arguments: Mapping[str, Any]) -> str:
        await asyncio.Event().wait()
        raise AssertionError

    script = [Answer(calls=[Wanted("wait"), Wanted("look"), Wanted("write")])]
    tools = [tool("wait", wait), tool("look", echo), tool("write", echo)]
    turn = Rehearsal(script, tools=tools, ask=["write"])
    async with engine_in(tmp_path) as engine, asyncio.timeout(SOON):
        before = asyncio.all_tasks()
        working = asyncio.create_task(engine.run(turn, turn.says("Wait!")))
        await turn.until(lambda: bool(turn.runs("wait")) and bool(turn.runs("look")) and bool(turn.pending))
        working.cancel()
        await asyncio.wait([working])
        assert working.cancelled()
        left = asyncio.all_tasks() - before
        if left:
            await asyncio.wait(left, timeout=1)
        assert not asyncio.all_tasks() - before
        turn.abandon()
        again = turn.following(["Here."])
        assert await engine.run(again, again.says("Are you there?")) == Done()
    told = {message["name"]: words(message) for message in again.records.questions[-1].messages if "name" in message}
    assert told == {"wait": "The call was cancelled.", "look": "ran {}", "write": "The call was cancelled."}
    assert len(turn.runs("wait")) == len(turn.runs("look")) == 1


@pytest.mark.anyio
async def test_nothing_is_told_to_langsmith(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGSMITH_TRACING", "true")
    traced: list[object] = []

    def answer(question: Question) -> str | Answer:
        traced.append(tracing_is_enabled())
        return "Done." if len(turn.records.questions) > 1 else Answer(calls=[Wanted("look")])

    async def look(arguments: Mapping[str, Any]) -> str:
        traced.append(tracing_is_enabled())
        return "a cat"

    turn = Rehearsal(answer, tools=[tool("look", look)])
    async with engine_in(tmp_path) as engine:
        await engine.run(turn, turn.says("Look!"))
    assert traced == [False, False, False]


@pytest.mark.anyio
async def test_many_sessions_at_a_time(tmp_path: Path) -> None:
    async with engine_in(tmp_path) as engine, asyncio.timeout(SOON):

        async def chat(name: str) -> list[str]:
            turn = Rehearsal([Answer(calls=[Wanted("look", {"who": name})]), f"{name}."], tools=[tool("look", echo)])
            await engine.run(turn, turn.says(name))
            return [words(message) for message in turn.records.questions[-1].messages[1:] if words(message)]

        names = [f"session {number}" for number in range(10)]
        assert await asyncio.gather(*map(chat, names)) == [[name, f"ran {{'who': '{name}'}}"] for name in names]


@pytest.mark.anyio
async def test_checkpoints_grow_with_the_conversation_and_no_faster(tmp_path: Path) -> None:
    """Whatever the length, there is one copy of it and what was added since."""

    async def page(arguments: Mapping[str, Any]) -> str:
        return "x" * 2000

    def answer(question: Question) -> str | Answer:
        done = len(turn.records.questions) % 10 == 0
        return "Done." if done else Answer(calls=[Wanted("read", {"page": len(turn.records.questions)})])

    sizes: dict[int, int] = {}
    turn = Rehearsal(answer, tools=[tool("read", page)])
    async with await Store.open(tmp_path / "paddock.db") as store, asyncio.timeout(60):
        engine, checkpoints = engine_of(store), CheckpointStore(store)
        while len(turn.records.messages) < 400:
            await engine.run(turn, turn.says("Read on!"))
            places = await checkpoints.all(turn.session.id)
            assert len(places) < 100
            kept = sum(len(place.checkpoint.body) + sum(len(write.body) for write in place.writes) for place in places)
            sizes[len(turn.records.messages)] = kept
            turn = turn.following()
        assert sizes[400] < 2.5 * sizes[200] < 7 * sizes[100], sizes
        said = len(turn.records.messages) * 1000
        assert sizes[400] < 2 * said, f"{sizes[400]} bytes of checkpoints for {said} bytes that were said"
        await engine.release(turn.session)
        assert await checkpoints.all(turn.session.id) == []


@pytest.mark.anyio
async def test_an_answer_that_was_gone_on_with_is_not_the_last_look(tmp_path: Path) -> None:
    """The turn failed at the question, so it is asked again without another look; what came meanwhile is read after."""
    turn = Rehearsal([Unavailable("the model is away"), "One.", "Two."])
    async with engine_in(tmp_path) as engine, asyncio.timeout(SOON):
        with pytest.raises(Unavailable):
            await engine.run(turn, turn.says("Count!"))
        turn.write("To two.")
        assert await engine.run(turn.reborn(), Continue()) == Done()
    assert [words(message) for message in turn.records.questions[-1].messages[1:]] == ["Count!", "One.", "To two."]


@pytest.mark.anyio
async def test_turns_side_by_side_share_a_graph_and_nothing_else(tmp_path: Path) -> None:
    """They have the same tools. Each asks with its own prompt, and calls through its own turn."""
    both = asyncio.Barrier(2)

    async def meet(arguments: Mapping[str, Any]) -> str:
        await both.wait()
        return f"met {arguments['who']}"

    def agent(name: str) -> Rehearsal:
        script: list[str | Answer] = [Answer(calls=[Wanted("meet", {"who": name})]), f"I am {name}."]
        return Rehearsal(script, tools=[tool("meet", meet)], prompt=f"You are {name}.")

    turns = [agent("Ann"), agent("Ben")]
    async with engine_in(tmp_path) as engine, asyncio.timeout(SOON):
        done = await asyncio.gather(*(engine.run(turn, turn.says("Go!")) for turn in turns))
    assert done == [Done(), Done()]
    for turn, name in zip(turns, ("Ann", "Ben"), strict=True):
        assert [words(each.messages[0]) for each in turn.records.questions] == [f"You are {name}."] * 2
        assert words(turn.records.questions[1].messages[-1]) == f"met {name}"
        assert turn.records.messages[-1].text == f"I am {name}."
