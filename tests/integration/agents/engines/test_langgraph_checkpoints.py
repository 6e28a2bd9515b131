"""Checkpoints of LangGraph: which are stored, and crashes while they are written."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any, Literal, TypeVar

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint

from paddock.agents.engines.base import ContinueTurn, TurnDone, TurnLimitReached, TurnPaused
from paddock.agents.engines.langgraph import LangGraphEngine
from paddock.agents.engines.langgraph.checkpoint_saver import StoreCheckpointSaver
from paddock.errors import Unavailable
from paddock.model.session_events import CallResulted, MessageDelta
from paddock.store.chat_sessions.langgraph_checkpoints import LangGraphCheckpointStore
from paddock.store.database import Store, Work
from paddock.testing.in_memory_turn import (
    InMemoryTurn,
    ModelQuestion,
    ScriptedCall,
    ScriptedReply,
    ServerKilled,
    make_tool,
    message_text,
)
from tests.integration.agents.engines.test_langgraph import echo, engine_of

pytestmark = pytest.mark.anyio
T = TypeVar("T")
RESTART = ContinueTurn(cause="restart")
TOOLS = [make_tool("add", echo), make_tool("look", echo, effect="none")]
SCRIPT: list[str | ScriptedReply] = [
    ScriptedReply(
        "I begin.", calls=[ScriptedCall("add", {"n": 1}), ScriptedCall("look"), ScriptedCall("add", {"n": 2})]
    ),
    ScriptedReply(calls=[ScriptedCall("add", {"n": 3})]),
    "All done.",
]


class KillableStore:
    """A store that simulates a kill before or after one of its writes."""

    def __init__(
        self, store: Store, turn: InMemoryTurn, kill_after: int, run_until_killed: Literal["before", "after"]
    ) -> None:
        self._store = store
        self._turn = turn
        self._left = kill_after
        self._kill_when = run_until_killed

    async def read(self, work: Work[T]) -> T:
        self._alive()
        return await self._store.read(work)

    async def write(self, work: Work[T], *, flush: bool = True) -> T:
        self._alive()
        self._left -= 1
        last = self._left == 0
        if not last or self._kill_when == "after":
            result = await self._store.write(work, flush=flush)
        self._turn.is_dead = self._turn.is_dead or last
        self._alive()
        return result

    def _alive(self) -> None:
        if self._turn.is_dead:
            raise ServerKilled


async def run_until_killed(mortal: KillableStore, turn: InMemoryTurn, given: Any) -> bool:
    try:
        await engine_of(mortal).run(turn, given)
    except ServerKilled:
        assert turn.is_dead
    return turn.is_dead


async def cancel(engine: LangGraphEngine, turn: InMemoryTurn) -> None:
    """When one call is done and the other is not, or within the answer."""
    run_task = asyncio.create_task(engine.run(turn, turn.receive_message("Wait!")))
    await turn.wait_until(
        lambda: bool(turn.runs_of("wait") and turn.events_of(CallResulted)) or len(turn.events_of(MessageDelta)) > 1
    )
    run_task.cancel()
    await asyncio.wait([run_task])
    turn.abandon_calls()


def as_if_nothing_had_happened(turn: InMemoryTurn, questions: int, runs: int) -> None:
    asked = turn.records.questions
    # A question without a stored reply may be repeated, but must be identical.
    assert len({question.digest for question in asked}) == questions, [each.text for each in asked]
    assert len(asked) <= questions + 1, [each.text for each in asked]
    lost = str(turn.records.ledger).count("The server stopped")
    assert len(turn.runs_of("add")) == runs
    assert lost <= runs
    assert set(Counter(event.call_id for event in turn.events_of(CallResulted)).values()) == {1}
    for question in asked:
        calls = [call["id"] for message in question.messages for call in message.get("tool_calls") or ()]
        told = [message["tool_call_id"] for message in question.messages if message["role"] == "tool"]
        assert calls == told


@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_at_any_write(tmp_path: Path, when: Literal["before", "after"]) -> None:
    async with await Store.open(tmp_path / "paddock.db") as store, asyncio.timeout(60):
        for kill_after in count(1):
            turn = InMemoryTurn(SCRIPT, tools=TOOLS)
            if not await run_until_killed(
                KillableStore(store, turn, kill_after, when), turn, turn.receive_message("Do it all.")
            ):
                assert kill_after > 4  # Before each of three questions, and at the end.
                break
            assert await engine_of(store).run(turn.after_restart(), RESTART) == TurnDone()
            as_if_nothing_had_happened(turn, questions=3, runs=3)
            assert turn.records.messages[-1].text == "All done."


def add_one(question: ModelQuestion) -> ScriptedReply | str:
    """Compared by tool runs, because a question without a stored reply is repeated."""
    done = "ran {'n': 1}" in [message_text(message) for message in question.messages]
    return "One." if done else ScriptedReply(calls=[ScriptedCall("add", {"n": 1})])


@pytest.mark.parametrize(
    "begun",
    [ScriptedReply(calls=[ScriptedCall("look"), ScriptedCall("wait")]), ScriptedReply("Once upon", never_ends=True)],
)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_in_a_turn_after_one_that_was_cancelled(
    tmp_path: Path, when: Literal["before", "after"], begun: ScriptedReply
) -> None:
    """The engine never continues the old turn."""

    async def wait(arguments: Mapping[str, Any]) -> str:
        await asyncio.Event().wait()
        raise AssertionError

    async with await Store.open(tmp_path / "paddock.db") as store, asyncio.timeout(60):
        for kill_after in count(1):
            cancelled = InMemoryTurn([begun], tools=[*TOOLS, make_tool("wait", wait)])
            await cancel(engine_of(store), cancelled)
            turn = cancelled.next_turn(add_one)
            if not await run_until_killed(
                KillableStore(store, turn, kill_after, when), turn, turn.receive_message("Add one.")
            ):
                assert kill_after > 3
                break
            turn = turn.after_restart()
            turn.write_message("Quickly.")
            assert await engine_of(store).run(turn, RESTART) == TurnDone()
            questions = [[message_text(message) for message in each.messages] for each in turn.records.questions[1:]]
            assert all(said.count("Wait!") == said.count("Add one.") == 1 for said in questions), questions
            assert questions[-1].count("Quickly.") == 1
            if begun.calls:
                assert questions[-1][1:5] == ["Wait!", "", "ran {}", "The call was cancelled."]
            else:
                assert questions[-1][1:3] == ["Wait!", "Once upon\n[cut off: cancelled]"]
            assert len(turn.runs_of("add")) == 1
            assert len(turn.runs_of("wait")) == len(turn.runs_of("look")) == len(begun.calls) / 2


@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_while_persons_decide(tmp_path: Path, when: Literal["before", "after"]) -> None:
    both = ScriptedReply(calls=[ScriptedCall("add", {"n": 1}), ScriptedCall("add", {"n": 2}), ScriptedCall("look")])
    async with await Store.open(tmp_path / "paddock.db") as store, asyncio.timeout(60):
        for kill_after in count(1):
            turn = InMemoryTurn([both, "Done."], tools=TOOLS, ask=["add"])
            was_killed = await run_until_killed(
                KillableStore(store, turn, kill_after, when), turn, turn.receive_message("Add!")
            )
            turn = turn.after_restart()
            if not turn.pending_approvals:
                await engine_of(store).run(turn, RESTART)
            turn = turn.after_restart()
            for approval in turn.pending_approvals:
                outcome = await engine_of(store).run(turn, turn.decisions(await turn.decide(approval)))
            assert outcome == TurnDone()
            as_if_nothing_had_happened(turn, questions=2, runs=2)
            if not was_killed:
                assert kill_after > 2
                break


async def test_checkpoints_are_read_as_langgraph_would(tmp_path: Path) -> None:
    """The batched read returns what LangGraph finds checkpoint by checkpoint."""
    async with await Store.open(tmp_path / "paddock.db") as store, asyncio.timeout(60):
        turn = InMemoryTurn(lambda question: ScriptedReply(calls=[ScriptedCall("look")]), tools=TOOLS, steps=40)
        with pytest.raises(TurnLimitReached):
            await engine_of(store).run(turn, turn.receive_message("Look!"))
        saver = StoreCheckpointSaver(store)
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
    task = ScriptedCall("task", {"description": "Add!", "subagent_type": "general-purpose"})
    calls = [ScriptedReply(calls=[each]) for each in (task, ScriptedCall("look"), ScriptedCall("add"))]
    script: list[str | ScriptedReply] = [*calls, "Added.", "Done."]
    turn = InMemoryTurn(script, tools=TOOLS, ask=["add"])
    async with await Store.open(tmp_path / "paddock.db") as store, asyncio.timeout(60):
        engine, checkpoints = engine_of(store), LangGraphCheckpointStore(store)
        assert await engine.run(turn, turn.receive_message("Add!")) == TurnPaused()
        kept = Counter(place.checkpoint.namespace for place in await checkpoints.list_checkpoints(turn.session.id))
        assert len(kept) == 2
        assert await engine.run(turn, turn.decisions(await turn.decide(turn.pending_approvals[0]))) == TurnDone()
        assert {place.checkpoint.namespace for place in await checkpoints.list_checkpoints(turn.session.id)} == {""}


class FullDiskStore:
    """A store that fails while the disk is full."""

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
    """Checkpoints depend on earlier ones, so failed writes are repeated with the next."""
    async with await Store.open(tmp_path / "paddock.db") as real, asyncio.timeout(60):
        store: Any = FullDiskStore(real)
        saver = StoreCheckpointSaver(store)
        config: Any = {"configurable": {"thread_id": "ses-1", "checkpoint_ns": ""}}
        for number in (1, 2):
            config = await saver.aput(config, snapshot(number), {}, {})
            await saver.aput_writes(config, [("turn", number)], "task")
        assert store.writes == 0
        with pytest.raises(Unavailable):
            await saver.flush("ses-1")
        store.full = False
        await saver.aput(config, snapshot(3), {}, {})
        settling = asyncio.create_task(saver.flush("ses-1"))
        await asyncio.sleep(0)
        settling.cancel()
        await asyncio.wait([settling])
        await saver.flush("ses-1")
        assert store.writes == 2
        kept = await LangGraphCheckpointStore(real).list_checkpoints("ses-1")
        assert [place.checkpoint.id for place in kept] == ["00000003", "00000002", "00000001"]
        assert [len(place.writes) for place in kept] == [0, 1, 1]
        found = await saver.aget_tuple({"configurable": {"thread_id": "ses-1"}})
        assert found is not None
        assert found.checkpoint["channel_values"]["turn"] == 3
