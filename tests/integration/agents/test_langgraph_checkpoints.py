"""LangGraph's checkpoints: what is kept of them, and what happens when the server dies while they are written."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any, Literal, TypeVar

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint

from paddock.agents.engines.base import Continue, Done, Paused, TurnLimit
from paddock.agents.engines.checkpoints import Checkpoints
from paddock.agents.engines.langgraph import LangGraphEngine
from paddock.agents.engines.rehearsal import Answer, Killed, Question, Rehearsal, Wanted, tool, words
from paddock.errors import Unavailable
from paddock.model.session_events import CallResulted, MessageDelta
from paddock.store.checkpoints import CheckpointStore
from paddock.store.database import Store, Work
from tests.integration.agents.test_langgraph import echo, engine_of

pytestmark = pytest.mark.anyio
T = TypeVar("T")
RESTART = Continue(cause="restart")
TOOLS = [tool("add", echo), tool("look", echo, effect="none")]
SCRIPT: list[str | Answer] = [
    Answer("I begin.", calls=[Wanted("add", {"n": 1}), Wanted("look"), Wanted("add", {"n": 2})]),
    Answer(calls=[Wanted("add", {"n": 3})]),
    "All done.",
]


class Mortal:
    """A store that dies with its server at one of its writes, which is lost (`before`) or kept (`after`)."""

    def __init__(self, store: Store, turn: Rehearsal, dies_after: int, dies: Literal["before", "after"]) -> None:
        self._store = store
        self._turn = turn
        self._left = dies_after
        self._dies = dies

    async def read(self, work: Work[T]) -> T:
        self._alive()
        return await self._store.read(work)

    async def write(self, work: Work[T], *, flush: bool = True) -> T:
        self._alive()
        self._left -= 1
        last = self._left == 0
        if not last or self._dies == "after":
            result = await self._store.write(work, flush=flush)
        self._turn.dead = self._turn.dead or last
        self._alive()
        return result

    def _alive(self) -> None:
        if self._turn.dead:
            raise Killed


async def dies(mortal: Mortal, turn: Rehearsal, given: Any) -> bool:
    try:
        await engine_of(mortal).run(turn, given)
    except Killed:
        assert turn.dead
    return turn.dead


async def cancel(engine: LangGraphEngine, turn: Rehearsal) -> None:
    """When one call is done and the other is not, or within the answer."""
    working = asyncio.create_task(engine.run(turn, turn.says("Wait!")))
    await turn.until(lambda: bool(turn.runs("wait") and turn.heard(CallResulted)) or len(turn.heard(MessageDelta)) > 1)
    working.cancel()
    await asyncio.wait([working])
    turn.abandon()


def as_if_nothing_had_happened(turn: Rehearsal, questions: int, runs: int) -> None:
    asked = turn.records.questions
    # One whose answer nobody had kept may be asked again, but it is the same one.
    assert len({question.digest for question in asked}) == questions, [each.text for each in asked]
    assert len(asked) <= questions + 1, [each.text for each in asked]
    lost = str(turn.records.ledger).count("The server stopped")
    assert len(turn.runs("add")) == runs
    assert lost <= runs
    assert set(Counter(event.call_id for event in turn.heard(CallResulted)).values()) == {1}
    for question in asked:
        calls = [call["id"] for message in question.messages for call in message.get("tool_calls") or ()]
        told = [message["tool_call_id"] for message in question.messages if message["role"] == "tool"]
        assert calls == told


@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_at_any_write(tmp_path: Path, when: Literal["before", "after"]) -> None:
    async with await Store.open(tmp_path / "paddock.db") as store, asyncio.timeout(60):
        for dies_after in count(1):
            turn = Rehearsal(SCRIPT, tools=TOOLS)
            if not await dies(Mortal(store, turn, dies_after, when), turn, turn.says("Do it all.")):
                assert dies_after > 4  # Before each of three questions, and at the end.
                break
            assert await engine_of(store).run(turn.reborn(), RESTART) == Done()
            as_if_nothing_had_happened(turn, questions=3, runs=3)
            assert turn.records.messages[-1].text == "All done."


def add_one(question: Question) -> Answer | str:
    """By what was done, since a question whose answer was not kept is asked again."""
    done = "ran {'n': 1}" in [words(message) for message in question.messages]
    return "One." if done else Answer(calls=[Wanted("add", {"n": 1})])


@pytest.mark.parametrize("begun", [Answer(calls=[Wanted("look"), Wanted("wait")]), Answer("Once upon", hangs=True)])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_in_a_turn_after_one_that_was_cancelled(
    tmp_path: Path, when: Literal["before", "after"], begun: Answer
) -> None:
    """Whatever it has of the new turn, it does not go on with the old one."""

    async def wait(arguments: Mapping[str, Any]) -> str:
        await asyncio.Event().wait()
        raise AssertionError

    async with await Store.open(tmp_path / "paddock.db") as store, asyncio.timeout(60):
        for dies_after in count(1):
            cancelled = Rehearsal([begun], tools=[*TOOLS, tool("wait", wait)])
            await cancel(engine_of(store), cancelled)
            turn = cancelled.following(add_one)
            if not await dies(Mortal(store, turn, dies_after, when), turn, turn.says("Add one.")):
                assert dies_after > 3
                break
            turn = turn.reborn()
            turn.write("Quickly.")
            assert await engine_of(store).run(turn, RESTART) == Done()
            questions = [[words(message) for message in each.messages] for each in turn.records.questions[1:]]
            assert all(said.count("Wait!") == said.count("Add one.") == 1 for said in questions), questions
            assert questions[-1].count("Quickly.") == 1
            if begun.calls:
                assert questions[-1][1:5] == ["Wait!", "", "ran {}", "The call was cancelled."]
            else:
                assert questions[-1][1:3] == ["Wait!", "Once upon\n[cut off: cancelled]"]
            assert len(turn.runs("add")) == 1
            assert len(turn.runs("wait")) == len(turn.runs("look")) == len(begun.calls) / 2


@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_while_persons_decide(tmp_path: Path, when: Literal["before", "after"]) -> None:
    both = Answer(calls=[Wanted("add", {"n": 1}), Wanted("add", {"n": 2}), Wanted("look")])
    async with await Store.open(tmp_path / "paddock.db") as store, asyncio.timeout(60):
        for dies_after in count(1):
            turn = Rehearsal([both, "Done."], tools=TOOLS, ask=["add"])
            died = await dies(Mortal(store, turn, dies_after, when), turn, turn.says("Add!"))
            turn = turn.reborn()
            if not turn.pending:
                await engine_of(store).run(turn, RESTART)
            turn = turn.reborn()
            for approval in turn.pending:
                outcome = await engine_of(store).run(turn, turn.decisions(await turn.decide(approval)))
            assert outcome == Done()
            as_if_nothing_had_happened(turn, questions=2, runs=2)
            if not died:
                assert dies_after > 2
                break


async def test_checkpoints_are_read_as_langgraph_would(tmp_path: Path) -> None:
    """What is read at once is what LangGraph finds when it goes from checkpoint to checkpoint."""
    async with await Store.open(tmp_path / "paddock.db") as store, asyncio.timeout(60):
        turn = Rehearsal(lambda question: Answer(calls=[Wanted("look")]), tools=TOOLS, steps=40)
        with pytest.raises(TurnLimit):
            await engine_of(store).run(turn, turn.says("Look!"))
        saver = Checkpoints(store)
        listed = [each async for each in saver.alist({"configurable": {"thread_id": turn.session.id}})]
        assert len(listed) > 20
        names = [each.config["configurable"]["checkpoint_id"] for each in listed]
        assert names == sorted(names, reverse=True)
        for each in listed[:-1]:
            channels = ["messages", "turn", "nothing"]
            quick = await saver.aget_delta_channel_history(config=each.config, channels=channels)
            slow = await BaseCheckpointSaver.aget_delta_channel_history(saver, config=each.config, channels=channels)
            assert quick == slow
            assert "seed" in quick["messages"]


async def test_checkpoints_of_helpers_are_kept_while_they_work(tmp_path: Path) -> None:
    task = Wanted("task", {"description": "Add!", "subagent_type": "general-purpose"})
    calls = [Answer(calls=[each]) for each in (task, Wanted("look"), Wanted("add"))]
    script: list[str | Answer] = [*calls, "Added.", "Done."]
    turn = Rehearsal(script, tools=TOOLS, ask=["add"])
    async with await Store.open(tmp_path / "paddock.db") as store, asyncio.timeout(60):
        engine, checkpoints = engine_of(store), CheckpointStore(store)
        assert await engine.run(turn, turn.says("Add!")) == Paused()
        kept = Counter(place.checkpoint.namespace for place in await checkpoints.all(turn.session.id))
        assert len(kept) == 2
        assert await engine.run(turn, turn.decisions(await turn.decide(turn.pending[0]))) == Done()
        assert {place.checkpoint.namespace for place in await checkpoints.all(turn.session.id)} == {""}


class Full:
    """A store whose disk is full for a while."""

    def __init__(self, store: Store) -> None:
        self.full = True
        self.writes = 0
        self._store = store

    async def read(self, work: Work[T]) -> T:
        return await self._store.read(work)

    async def write(self, work: Work[T], *, flush: bool = True) -> T:
        self.writes += 1
        if self.full:
            raise Unavailable("the disk is full")
        return await self._store.write(work, flush=flush)


def snapshot(number: int) -> Any:
    empty = empty_checkpoint()
    return {**empty, "id": f"{number:08}", "channel_values": {"turn": number}, "channel_versions": {"turn": number}}


async def test_checkpoints_are_written_together_and_none_is_left_out(tmp_path: Path) -> None:
    """Each needs the one before it, so those that could not be written are written with the next."""
    async with await Store.open(tmp_path / "paddock.db") as real, asyncio.timeout(60):
        store: Any = Full(real)
        saver = Checkpoints(store)
        config: Any = {"configurable": {"thread_id": "ses-1", "checkpoint_ns": ""}}
        for number in (1, 2):
            config = await saver.aput(config, snapshot(number), {}, {})
            await saver.aput_writes(config, [("turn", number)], "task")
        assert store.writes == 0
        with pytest.raises(Unavailable):
            await saver.settle("ses-1")
        store.full = False
        await saver.aput(config, snapshot(3), {}, {})
        settling = asyncio.create_task(saver.settle("ses-1"))
        await asyncio.sleep(0)
        settling.cancel()
        await asyncio.wait([settling])
        await saver.settle("ses-1")
        assert store.writes == 2
        kept = await CheckpointStore(real).all("ses-1")
        assert [place.checkpoint.id for place in kept] == ["00000003", "00000002", "00000001"]
        assert [len(place.writes) for place in kept] == [0, 1, 1]
        found = await saver.aget_tuple({"configurable": {"thread_id": "ses-1"}})
        assert found is not None
        assert found.checkpoint["channel_values"]["turn"] == 3
