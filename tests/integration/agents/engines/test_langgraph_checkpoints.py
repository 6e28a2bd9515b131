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
        self, store: Store, turn: InMemoryTurn, kill_after: int, kill_when: Literal["before", "after"]
    ) -> None:
        self._store = store
        self._turn = turn
        self._writes_left = kill_after
        self._kill_when = kill_when

    async def read(self, work: Work[T]) -> T:
        self._check_alive()
        return await self._store.read(work)

    async def write(self, work: Work[T], *, flush: bool = True) -> T:
        self._check_alive()
        self._writes_left -= 1
        last = self._writes_left == 0
        if not last or self._kill_when == "after":
            result = await self._store.write(work, flush=flush)
        self._turn.is_dead = self._turn.is_dead or last
        self._check_alive()
        return result

    def _check_alive(self) -> None:
        if self._turn.is_dead:
            raise ServerKilled


async def run_until_killed(killable_store: KillableStore, turn: InMemoryTurn, turn_input: Any) -> bool:
    try:
        await engine_of(killable_store).run(turn, turn_input)
    except ServerKilled:
        assert turn.is_dead
    return turn.is_dead


async def run_and_cancel(engine: LangGraphEngine, turn: InMemoryTurn) -> None:
    """Run a turn and cancel it between two calls, or during the reply."""
    run_task = asyncio.create_task(engine.run(turn, turn.receive_message("Wait!")))
    await turn.wait_until(
        lambda: bool(turn.runs_of("wait") and turn.events_of(CallResulted)) or len(turn.events_of(MessageDelta)) > 1
    )
    run_task.cancel()
    await asyncio.wait([run_task])
    turn.abandon_calls()


def check_same_as_without_crash(turn: InMemoryTurn, questions: int, runs: int) -> None:
    question_records = turn.records.questions
    # A question without a stored reply may be repeated, but must be identical.
    assert len({question.digest for question in question_records}) == questions, [
        each.text for each in question_records
    ]
    assert len(question_records) <= questions + 1, [each.text for each in question_records]
    lost = str(turn.records.ledger).count("The server stopped")
    assert len(turn.runs_of("add")) == runs
    assert lost <= runs
    assert set(Counter(event.call_id for event in turn.events_of(CallResulted)).values()) == {1}
    for question in question_records:
        calls = [call["id"] for message in question.messages for call in message.get("tool_calls") or ()]
        result_ids = [message["tool_call_id"] for message in question.messages if message["role"] == "tool"]
        assert calls == result_ids


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
            check_same_as_without_crash(turn, questions=3, runs=3)
            assert turn.records.messages[-1].text == "All done."


def add_one(question: ModelQuestion) -> ScriptedReply | str:
    """Reply to a question, depending on results: a question without a stored reply is repeated."""
    done = "ran {'n': 1}" in [message_text(message) for message in question.messages]
    return "One." if done else ScriptedReply(calls=[ScriptedCall("add", {"n": 1})])


@pytest.mark.parametrize(
    "cancelled_reply",
    [ScriptedReply(calls=[ScriptedCall("look"), ScriptedCall("wait")]), ScriptedReply("Once upon", never_ends=True)],
)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_in_turn_after_a_cancelled_one(
    tmp_path: Path, when: Literal["before", "after"], cancelled_reply: ScriptedReply
) -> None:
    """The engine never continues the old turn."""

    async def wait(arguments: Mapping[str, Any]) -> str:
        await asyncio.Event().wait()
        raise AssertionError

    async with await Store.open(tmp_path / "paddock.db") as store, asyncio.timeout(60):
        for kill_after in count(1):
            cancelled = InMemoryTurn([cancelled_reply], tools=[*TOOLS, make_tool("wait", wait)])
            await run_and_cancel(engine_of(store), cancelled)
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
            assert all(texts.count("Wait!") == texts.count("Add one.") == 1 for texts in questions), questions
            assert questions[-1].count("Quickly.") == 1
            if cancelled_reply.calls:
                assert questions[-1][1:5] == ["Wait!", "", "ran {}", "The call was cancelled."]
            else:
                assert questions[-1][1:3] == ["Wait!", "Once upon\n[cut off: cancelled]"]
            assert len(turn.runs_of("add")) == 1
            assert len(turn.runs_of("wait")) == len(turn.runs_of("look")) == len(cancelled_reply.calls) / 2


@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_during_pending_approvals(tmp_path: Path, when: Literal["before", "after"]) -> None:
    reply_with_calls = ScriptedReply(
        calls=[ScriptedCall("add", {"n": 1}), ScriptedCall("add", {"n": 2}), ScriptedCall("look")]
    )
    async with await Store.open(tmp_path / "paddock.db") as store, asyncio.timeout(60):
        for kill_after in count(1):
            turn = InMemoryTurn([reply_with_calls, "Done."], tools=TOOLS, ask=["add"])
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
            check_same_as_without_crash(turn, questions=2, runs=2)
            if not was_killed:
                assert kill_after > 2
                break


async def test_batched_history_equals_langgraphs_own(tmp_path: Path) -> None:
    """The batched read equals LangGraph's own reads of single checkpoints."""
    async with await Store.open(tmp_path / "paddock.db") as store, asyncio.timeout(60):
        turn = InMemoryTurn(lambda question: ScriptedReply(calls=[ScriptedCall("look")]), tools=TOOLS, steps=40)
        with pytest.raises(TurnLimitReached):
            await engine_of(store).run(turn, turn.receive_message("Look!"))
        saver = StoreCheckpointSaver(store)
        checkpoint_tuples = [each async for each in saver.alist({"configurable": {"thread_id": turn.session.id}})]
        assert len(checkpoint_tuples) > 20
        names = [each.config["configurable"]["checkpoint_id"] for each in checkpoint_tuples]
        assert names == sorted(names, reverse=True)
        for each in checkpoint_tuples[:-1]:
            channels = ["messages", "turn", "nothing"]
            batched = await saver.aget_delta_channel_history(config=each.config, channels=channels)
            unbatched = await BaseCheckpointSaver.aget_delta_channel_history(
                saver, config=each.config, channels=channels
            )
            assert batched == unbatched
            assert "seed" in batched["messages"]


async def test_checkpoints_of_helpers_stay_while_they_run(tmp_path: Path) -> None:
    task = ScriptedCall("task", {"description": "Add!", "subagent_type": "general-purpose"})
    calls = [ScriptedReply(calls=[each]) for each in (task, ScriptedCall("look"), ScriptedCall("add"))]
    script: list[str | ScriptedReply] = [*calls, "Added.", "Done."]
    turn = InMemoryTurn(script, tools=TOOLS, ask=["add"])
    async with await Store.open(tmp_path / "paddock.db") as store, asyncio.timeout(60):
        engine, checkpoints = engine_of(store), LangGraphCheckpointStore(store)
        assert await engine.run(turn, turn.receive_message("Add!")) == TurnPaused()
        namespaces = Counter(
            stored.checkpoint.namespace for stored in await checkpoints.list_checkpoints(turn.session.id)
        )
        assert len(namespaces) == 2
        assert await engine.run(turn, turn.decisions(await turn.decide(turn.pending_approvals[0]))) == TurnDone()
        assert {stored.checkpoint.namespace for stored in await checkpoints.list_checkpoints(turn.session.id)} == {""}


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


async def test_failed_checkpoint_writes_are_repeated_together(tmp_path: Path) -> None:
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
        flush_task = asyncio.create_task(saver.flush("ses-1"))
        await asyncio.sleep(0)
        flush_task.cancel()
        await asyncio.wait([flush_task])
        await saver.flush("ses-1")
        assert store.writes == 2
        stored_checkpoints = await LangGraphCheckpointStore(real).list_checkpoints("ses-1")
        assert [stored.checkpoint.id for stored in stored_checkpoints] == ["00000003", "00000002", "00000001"]
        assert [len(stored.writes) for stored in stored_checkpoints] == [0, 1, 1]
        newest = await saver.aget_tuple({"configurable": {"thread_id": "ses-1"}})
        assert newest is not None
        assert newest.checkpoint["channel_values"]["turn"] == 3
