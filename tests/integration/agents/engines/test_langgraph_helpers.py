"""Helpers of the LangGraph engine, to which the agent delegates tasks."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any, Literal

import pytest

from paddock.agents.engines.base import ContinueTurn, TurnDone, TurnLimitReached, TurnPaused
from paddock.model.session_events import CallReady, CallResulted, StepStarted
from paddock.testing.in_memory_turn import (
    InMemoryTurn,
    ModelQuestion,
    ScriptedCall,
    ScriptedReply,
    ServerKilled,
    make_tool,
    message_text,
)
from tests.integration.agents.engines.test_langgraph import TEST_TIMEOUT, echo, engine_in

pytestmark = pytest.mark.anyio
RESTART = ContinueTurn(cause="restart")


def delegate_tasks(*tasks: str) -> ScriptedReply:
    calls = [ScriptedCall("task", {"description": each, "subagent_type": "general-purpose"}) for each in tasks]
    return ScriptedReply("I let it be done.", calls=calls)


def scripted_replies(question: ModelQuestion) -> str | ScriptedReply:
    """Reply for the agent, which delegates two tasks, and for helpers, which write once and report."""
    task, *rest = [message for message in question.messages if message["role"] != "system"]
    if question.by is None:
        return "All done." if rest else delegate_tasks("Count cats.", "Count dogs.")
    return (
        f"Report: {message_text(rest[-1])}"
        if rest
        else ScriptedReply(calls=[ScriptedCall("write", {"what": message_text(task)})])
    )


TOOLS = [make_tool("write", echo)]


async def test_helpers_work_in_the_same_turn(tmp_path: Path) -> None:
    """Sub-agents' requests name the sub-agent, their calls belong to the session, and the agent gets only reports."""
    turn = InMemoryTurn(scripted_replies, tools=TOOLS, prompt="You are kind.")
    async with engine_in(tmp_path) as engine, asyncio.timeout(TEST_TIMEOUT):
        assert await engine.run(turn, turn.receive_message("Count!")) == TurnDone()
    question_records = turn.records.questions
    assert Counter(question.by for question in question_records) == {None: 2, "general-purpose": 4}
    assert {event.by for event in turn.events_of(StepStarted)} == {None, "general-purpose"}
    for question in question_records:
        assert message_text(question.messages[0]).startswith("You are kind.")
        assert ("task" in question.tools) == (question.by is None)
    texts = [message_text(message) for message in question_records[-1].messages[1:]]
    report = "Report: ran {{'what': 'Count {}.'}}"
    assert texts == ["Count!", "I let it be done.", report.format("cats"), report.format("dogs")]
    assert Counter(event.call.name for event in turn.events_of(CallReady)) == {"task": 2, "write": 2}
    assert len(turn.events_of(CallResulted)) == 4


async def test_calls_of_helpers_are_decided_one_by_one(tmp_path: Path) -> None:
    turn = InMemoryTurn(scripted_replies, tools=TOOLS, ask=["write"])
    async with engine_in(tmp_path) as engine, asyncio.timeout(TEST_TIMEOUT):
        assert await engine.run(turn, turn.receive_message("Count!")) == TurnPaused()
        assert len(turn.pending_approvals) == 2
        decided = await turn.decide(turn.pending_approvals[1])
        assert await engine.run(turn.after_restart(), turn.decisions(decided)) == TurnPaused()
        assert turn.runs_of("write") == [decided.arguments]
        decided = await turn.decide(turn.pending_approvals[0], "reject", reason="not those")
        assert await engine.run(turn.after_restart(), turn.decisions(decided)) == TurnDone()
    assert len(turn.runs_of("write")) == 1
    assert "not those" in str(turn.records.questions[-1].messages)


@pytest.mark.parametrize("crash_when", ["before", "after"])
async def test_killed_at_any_change(tmp_path: Path, crash_when: Literal["before", "after"]) -> None:
    """Work of helpers is not repeated."""
    async with engine_in(tmp_path) as engine, asyncio.timeout(60):
        for crash_after in count(1):
            turn = InMemoryTurn(scripted_replies, tools=TOOLS, crash_after=crash_after, crash_when=crash_when)
            turn_input = turn.receive_message("Count!")
            try:
                await engine.run(turn, turn_input)
            except ServerKilled:
                assert await engine.run(turn.after_restart(), RESTART) == TurnDone()
            else:
                assert crash_after > 20
                break
            question_records = turn.records.questions
            assert len({question.digest for question in question_records}) == 6, (
                f"asked in other words after {crash_after}"
            )
            assert len(question_records) <= 8
            lost = str(turn.records.ledger).count("The server stopped")
            assert len(turn.runs_of("write")) + lost >= 2
            assert max(Counter(str(arguments) for arguments in turn.runs_of("write")).values(), default=0) <= 1
            results = Counter(event.call_id for event in turn.events_of(CallResulted))
            assert len(results) == 4 and set(results.values()) == {1}
            assert turn.records.messages[-1].text == "All done."


async def test_turn_cancelled_while_helper_runs(tmp_path: Path) -> None:
    async def wait(arguments: Mapping[str, Any]) -> str:
        await asyncio.Event().wait()
        raise AssertionError

    turn = InMemoryTurn(scripted_replies, tools=[make_tool("write", wait)])
    async with engine_in(tmp_path) as engine, asyncio.timeout(TEST_TIMEOUT):
        run_task = asyncio.create_task(engine.run(turn, turn.receive_message("Count!")))
        await turn.wait_until(lambda: len(turn.runs_of("write")) == 2)
        run_task.cancel()
        await asyncio.wait([run_task])
        assert run_task.cancelled()
        turn.abandon_calls()
        next_turn = turn.next_turn(["Here."])
        assert await engine.run(next_turn, next_turn.receive_message("Are you there?")) == TurnDone()
    last_question = next_turn.records.questions[-1]
    assert last_question.by is None
    assert last_question.text == "Are you there?"
    assert "The call was cancelled." in str(last_question.messages)
    assert len(turn.runs_of("write")) == 2


async def test_denied_helper_is_not_run(tmp_path: Path) -> None:
    turn = InMemoryTurn(scripted_replies, tools=TOOLS, deny=["task"])
    async with engine_in(tmp_path) as engine, asyncio.timeout(TEST_TIMEOUT):
        assert await engine.run(turn, turn.receive_message("Count!")) == TurnDone()
    assert {question.by for question in turn.records.questions} == {None}
    assert [entry.result.refused for entry in turn.records.ledger.values() if entry.result] == [True, True]


async def test_unknown_helper_is_reported_to_the_model(tmp_path: Path) -> None:
    """The model gets the error, also for invalid arguments."""
    wrong = [ScriptedCall("task", {"description": "x", "subagent_type": "expert"}), ScriptedCall("task", {"what": 1})]
    turn = InMemoryTurn([ScriptedReply(calls=[*wrong, ScriptedCall("task", "{")]), "I see."], tools=TOOLS)
    async with engine_in(tmp_path) as engine, asyncio.timeout(TEST_TIMEOUT):
        assert await engine.run(turn, turn.receive_message("Count!")) == TurnDone()
    result_texts = [
        message_text(message) for message in turn.records.questions[-1].messages if message["role"] == "tool"
    ]
    assert "does not exist" in result_texts[0]
    assert "description" in result_texts[1]
    assert "no JSON object" in result_texts[2]
    assert all(entry.result for entry in turn.records.ledger.values())


async def test_steps_of_helpers_count_for_the_turn(tmp_path: Path) -> None:
    turn = InMemoryTurn(scripted_replies, tools=TOOLS, steps=2)
    async with engine_in(tmp_path) as engine, asyncio.timeout(TEST_TIMEOUT):
        with pytest.raises(TurnLimitReached):
            await engine.run(turn, turn.receive_message("Count!"))
