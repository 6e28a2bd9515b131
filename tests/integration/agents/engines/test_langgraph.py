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

from paddock.agents.engines.base import ContinueTurn, TurnDone, TurnPaused
from paddock.agents.engines.langgraph import LangGraphEngine
from paddock.agents.engines.registry import EngineDependencies
from paddock.config.schema import Config
from paddock.errors import Unavailable
from paddock.model.sessions import SessionMessage
from paddock.store.chat_sessions.langgraph_checkpoints import LangGraphCheckpointStore
from paddock.store.database import Store
from paddock.testing.engines import EngineConformance
from paddock.testing.in_memory_turn import (
    InMemoryTurn,
    ModelQuestion,
    ScriptedCall,
    ScriptedReply,
    make_tool,
    message_text,
)

TEST_TIMEOUT = 20.0


async def echo(arguments: Mapping[str, Any]) -> str:
    return f"ran {arguments}"


@asynccontextmanager
async def engine_in(directory: Path) -> AsyncIterator[LangGraphEngine]:
    async with await Store.open(directory / "paddock.db") as store:
        yield engine_of(store)


def engine_of(store: Any) -> LangGraphEngine:
    absent: Any = sentinel.not_needed
    return LangGraphEngine(EngineDependencies(Config(), store, absent, absent, absent, absent, absent))


class TestLangGraph(EngineConformance):
    pass


@pytest.fixture
def engine(tmp_path: Path) -> Callable[[], AbstractAsyncContextManager[LangGraphEngine]]:
    return lambda: engine_in(tmp_path)


@pytest.mark.anyio
async def test_only_own_tools_and_helpers_are_offered(tmp_path: Path) -> None:
    turn = InMemoryTurn(["Hello."], tools=[make_tool("look", echo)], prompt="You are kind.")
    async with engine_in(tmp_path) as engine:
        await engine.run(turn, turn.receive_message("Hi!"))
    (question,) = turn.records.questions
    assert set(question.tools) == {"look", "task"}
    assert question.messages == [
        {"role": "system", "content": "You are kind."},
        {"role": "user", "content": "Hi!"},
    ]


@pytest.mark.anyio
async def test_turn_pauses_and_continues_with_each_decision(tmp_path: Path) -> None:
    both = ScriptedReply(calls=[ScriptedCall("write", {"n": 1}), ScriptedCall("write", {"n": 2}), ScriptedCall("look")])
    turn = InMemoryTurn([both, "Done."], tools=[make_tool("write", echo), make_tool("look", echo)], ask=["write"])
    async with engine_in(tmp_path) as engine, asyncio.timeout(TEST_TIMEOUT):
        assert await engine.run(turn, turn.receive_message("Write!")) == TurnPaused()
        assert (len(turn.pending_approvals), turn.runs_of("look"), turn.runs_of("write")) == (2, [{}], [])
        second = await turn.decide(turn.pending_approvals[1])
        assert await engine.run(turn, turn.decisions(second)) == TurnPaused()
        assert turn.runs_of("write") == [{"n": 2}]
        first = await turn.decide(turn.pending_approvals[0], "edit", arguments={"n": 3})
        assert await engine.run(turn, turn.decisions(first)) == TurnDone()
    assert turn.runs_of("write") == [{"n": 2}, {"n": 3}]
    assert turn.runs_of("look") == [{}]
    assert len(turn.records.questions) == 2


@pytest.mark.anyio
async def test_message_during_pending_approval_is_read_afterwards(tmp_path: Path) -> None:
    turn = InMemoryTurn(
        [ScriptedReply(calls=[ScriptedCall("write")]), "Done."], tools=[make_tool("write", echo)], ask=["write"]
    )
    async with engine_in(tmp_path) as engine, asyncio.timeout(TEST_TIMEOUT):
        await engine.run(turn, turn.receive_message("Write!"))
        turn.write_message("In English.")
        assert await engine.run(turn, ContinueTurn()) == TurnPaused()
        assert await engine.run(turn, turn.decisions(await turn.decide(turn.pending_approvals[0]))) == TurnDone()
    assert [message_text(message) for message in turn.records.questions[-1].messages[-2:]] == ["ran {}", "In English."]


@pytest.mark.anyio
async def test_finished_turn_can_be_continued(tmp_path: Path) -> None:
    turn = InMemoryTurn(["One.", "Two."])
    async with engine_in(tmp_path) as engine, asyncio.timeout(TEST_TIMEOUT):
        await engine.run(turn, turn.receive_message("Count!"))
        assert await engine.run(turn.after_restart(), ContinueTurn()) == TurnDone()
    texts = [message_text(message) for message in turn.records.questions[-1].messages[1:]]
    assert texts[:2] == ["Count!", "One."]
    assert texts[2].startswith("[note] ")
    assert turn.records.messages[-1].text == "Two."


@pytest.mark.anyio
async def test_turns_of_another_engine_are_read(tmp_path: Path) -> None:
    turn = InMemoryTurn(["One."])
    async with engine_in(tmp_path) as engine, asyncio.timeout(TEST_TIMEOUT):
        await engine.run(turn, turn.receive_message("Count!"))
        other = turn.next_turn(["Two."])
        other.receive_message("And then?")
        async with other.start_message() as writer:
            await writer.write_text("Two, says another.")
            await writer.finish()
        third = other.next_turn(["Three."])
        await engine.run(third, third.receive_message("And then?"))
    texts = [message_text(message) for message in third.records.questions[-1].messages[1:]]
    assert texts == ["Count!", "One.", "And then?", "Two, says another.", "And then?"]


@pytest.mark.anyio
async def test_messages_of_helpers_are_not_in_a_fork(tmp_path: Path) -> None:
    turn = InMemoryTurn(["One."])
    first = turn.receive_message("Count!")
    helper = SessionMessage(
        **{**first.message.model_dump(), "id": "msg_h", "role": "assistant", "by": "general-purpose"}
    )
    turn.records.messages.append(helper)
    async with engine_in(tmp_path) as engine, asyncio.timeout(TEST_TIMEOUT):
        await engine.run(turn, first)
        fork = turn.forked_turn(["Two."])
        await engine.run(fork, fork.receive_message("And then?"))
    assert [message_text(message) for message in fork.records.questions[-1].messages[1:]] == [
        "Count!",
        "One.",
        "And then?",
    ]


@pytest.mark.anyio
async def test_unusual_arguments_survive_checkpoints(tmp_path: Path) -> None:
    unusual = {"large": 2**80, "half": "\ud83d", "deep": [{"a": [1.5, None, True]}], "wide": "ü€😀"}
    script: list[str | ScriptedReply] = [ScriptedReply(calls=[ScriptedCall("write", unusual)]), "Done.", "Again."]
    turn = InMemoryTurn(script, tools=[make_tool("write", echo)], ask=["write"])
    async with engine_in(tmp_path) as engine, asyncio.timeout(TEST_TIMEOUT):
        await engine.run(turn, turn.receive_message("Write!"))
        await turn.decide(turn.pending_approvals[0])
        assert await engine.run(turn.after_restart(), ContinueTurn(cause="restart")) == TurnDone()
        next_turn = turn.next_turn()
        assert await engine.run(next_turn, next_turn.receive_message("Again!")) == TurnDone()
    assert turn.runs_of("write") == [unusual]


@pytest.mark.anyio
async def test_cancelled_turn_leaves_no_tasks(tmp_path: Path) -> None:
    async def wait(arguments: Mapping[str, Any]) -> str:
        await asyncio.Event().wait()
        raise AssertionError

    script = [ScriptedReply(calls=[ScriptedCall("wait"), ScriptedCall("look"), ScriptedCall("write")])]
    tools = [make_tool("wait", wait), make_tool("look", echo), make_tool("write", echo)]
    turn = InMemoryTurn(script, tools=tools, ask=["write"])
    async with engine_in(tmp_path) as engine, asyncio.timeout(TEST_TIMEOUT):
        before = asyncio.all_tasks()
        run_task = asyncio.create_task(engine.run(turn, turn.receive_message("Wait!")))
        await turn.wait_until(
            lambda: bool(turn.runs_of("wait")) and bool(turn.runs_of("look")) and bool(turn.pending_approvals)
        )
        run_task.cancel()
        await asyncio.wait([run_task])
        assert run_task.cancelled()
        remaining = asyncio.all_tasks() - before
        if remaining:
            await asyncio.wait(remaining, timeout=1)
        assert not asyncio.all_tasks() - before
        turn.abandon_calls()
        next_turn = turn.next_turn(["Here."])
        assert await engine.run(next_turn, next_turn.receive_message("Are you there?")) == TurnDone()
    results_by_tool = {
        message["name"]: message_text(message)
        for message in next_turn.records.questions[-1].messages
        if "name" in message
    }
    assert results_by_tool == {"wait": "The call was cancelled.", "look": "ran {}", "write": "The call was cancelled."}
    assert len(turn.runs_of("wait")) == len(turn.runs_of("look")) == 1


@pytest.mark.anyio
async def test_langsmith_tracing_is_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGSMITH_TRACING", "true")
    traced: list[object] = []

    def answer(question: ModelQuestion) -> str | ScriptedReply:
        traced.append(tracing_is_enabled())
        return "Done." if len(turn.records.questions) > 1 else ScriptedReply(calls=[ScriptedCall("look")])

    async def look(arguments: Mapping[str, Any]) -> str:
        traced.append(tracing_is_enabled())
        return "a cat"

    turn = InMemoryTurn(answer, tools=[make_tool("look", look)])
    async with engine_in(tmp_path) as engine:
        await engine.run(turn, turn.receive_message("Look!"))
    assert traced == [False, False, False]


@pytest.mark.anyio
async def test_concurrent_sessions(tmp_path: Path) -> None:
    async with engine_in(tmp_path) as engine, asyncio.timeout(TEST_TIMEOUT):

        async def chat(name: str) -> list[str]:
            turn = InMemoryTurn(
                [ScriptedReply(calls=[ScriptedCall("look", {"who": name})]), f"{name}."],
                tools=[make_tool("look", echo)],
            )
            await engine.run(turn, turn.receive_message(name))
            return [
                message_text(message) for message in turn.records.questions[-1].messages[1:] if message_text(message)
            ]

        names = [f"session {number}" for number in range(10)]
        assert await asyncio.gather(*map(chat, names)) == [[name, f"ran {{'who': '{name}'}}"] for name in names]


@pytest.mark.anyio
async def test_checkpoints_grow_linearly_with_the_conversation(tmp_path: Path) -> None:
    """A conversation of any length is stored once, plus additions."""

    async def page(arguments: Mapping[str, Any]) -> str:
        return "x" * 2000

    def answer(question: ModelQuestion) -> str | ScriptedReply:
        done = len(turn.records.questions) % 10 == 0
        return "Done." if done else ScriptedReply(calls=[ScriptedCall("read", {"page": len(turn.records.questions)})])

    sizes: dict[int, int] = {}
    turn = InMemoryTurn(answer, tools=[make_tool("read", page)])
    async with await Store.open(tmp_path / "paddock.db") as store, asyncio.timeout(60):
        engine, checkpoints = engine_of(store), LangGraphCheckpointStore(store)
        while len(turn.records.messages) < 400:
            await engine.run(turn, turn.receive_message("Read on!"))
            checkpoints_stored = await checkpoints.list_checkpoints(turn.session.id)
            assert len(checkpoints_stored) < 100
            size = sum(
                len(stored.checkpoint.body) + sum(len(write.body) for write in stored.writes)
                for stored in checkpoints_stored
            )
            sizes[len(turn.records.messages)] = size
            turn = turn.next_turn()
        assert sizes[400] < 2.5 * sizes[200] < 7 * sizes[100], sizes
        text_size = len(turn.records.messages) * 1000
        assert sizes[400] < 2 * text_size, f"{sizes[400]} bytes of checkpoints for {text_size} bytes of messages"
        await engine.release(turn.session)
        assert await checkpoints.list_checkpoints(turn.session.id) == []


@pytest.mark.anyio
async def test_resumed_question_is_followed_by_reading_messages(tmp_path: Path) -> None:
    """The failed question is repeated first; messages that arrived meanwhile are read after it."""
    turn = InMemoryTurn([Unavailable("the model is away"), "One.", "Two."])
    async with engine_in(tmp_path) as engine, asyncio.timeout(TEST_TIMEOUT):
        with pytest.raises(Unavailable):
            await engine.run(turn, turn.receive_message("Count!"))
        turn.write_message("To two.")
        assert await engine.run(turn.after_restart(), ContinueTurn()) == TurnDone()
    assert [message_text(message) for message in turn.records.questions[-1].messages[1:]] == [
        "Count!",
        "One.",
        "To two.",
    ]


@pytest.mark.anyio
async def test_concurrent_turns_share_only_the_graph(tmp_path: Path) -> None:
    """They have the same tools. Each asks with its own prompt, and calls through its own turn."""
    barrier = asyncio.Barrier(2)

    async def meet(arguments: Mapping[str, Any]) -> str:
        await barrier.wait()
        return f"met {arguments['who']}"

    def agent(name: str) -> InMemoryTurn:
        script: list[str | ScriptedReply] = [
            ScriptedReply(calls=[ScriptedCall("meet", {"who": name})]),
            f"I am {name}.",
        ]
        return InMemoryTurn(script, tools=[make_tool("meet", meet)], prompt=f"You are {name}.")

    turns = [agent("Ann"), agent("Ben")]
    async with engine_in(tmp_path) as engine, asyncio.timeout(TEST_TIMEOUT):
        outcomes = await asyncio.gather(*(engine.run(turn, turn.receive_message("Go!")) for turn in turns))
    assert outcomes == [TurnDone(), TurnDone()]
    for turn, name in zip(turns, ("Ann", "Ben"), strict=True):
        assert [message_text(each.messages[0]) for each in turn.records.questions] == [f"You are {name}."] * 2
        assert message_text(turn.records.questions[1].messages[-1]) == f"met {name}"
        assert turn.records.messages[-1].text == f"I am {name}."
