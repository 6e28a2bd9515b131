"""Checks of tool calls: results, concurrency and failures."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from paddock.agents.engines.base import ContinueTurn
from paddock.model.session_events import CallReady, CallResulted
from paddock.testing.engines.conformance_harness import EngineConformanceHarness, conformance_check, list_tool_results
from paddock.testing.in_memory_turn import ScriptedCall, ScriptedReply, make_tool, message_text


async def add(arguments: Mapping[str, Any]) -> str:
    return str(arguments["a"] + arguments["b"])


async def fail(arguments: Mapping[str, Any]) -> str:
    raise RuntimeError("the disk is full")


CONCURRENT_START_TIMEOUT = 2.0
"""Seconds within which calls of one reply must start."""
ADD = make_tool("add", add, required=["a", "b"])
FAIL = make_tool("fail", fail)


class ToolCallChecks:
    """Checks of tool calls: results, concurrency and failures."""

    @conformance_check
    async def test_call_and_its_result(self, harness: EngineConformanceHarness) -> None:
        """The model gets the tools, and the result under the id of the call."""
        harness.require_player()
        turn = harness.new_turn(
            [ScriptedReply(calls=[ScriptedCall("add", {"a": 1, "b": 2})]), "It is 3."], tools=[ADD, FAIL]
        )
        await harness.run_turn(turn, turn.receive_message("What is 1 + 2?"))
        assert turn.runs_of("add") == [{"a": 1, "b": 2}]
        assert len(turn.records.questions) == 2
        first, second = turn.records.questions
        assert harness.engine.has_own_tools or {"add", "fail"} <= set(first.tools)
        (result,) = list_tool_results(second.messages)
        (call,) = turn.records.messages[1].calls
        assert (result["tool_call_id"], message_text(result)) == (call.id, "3")
        recorded = turn.records.ledger[call.id].result
        assert recorded is not None
        assert (recorded.text, recorded.failed) == ("3", False)
        assert turn.records.messages[-1].text == "It is 3."

    @conformance_check
    async def test_calls_of_one_reply_run_concurrently(self, harness: EngineConformanceHarness) -> None:
        """Also calls of the same tool; each call gets its own result."""
        harness.require_player()
        barrier = asyncio.Barrier(3)

        async def meet(arguments: Mapping[str, Any]) -> str:
            async with asyncio.timeout(CONCURRENT_START_TIMEOUT):
                await barrier.wait()
            return f"{arguments['name']} has met the others"

        scripted_calls = [ScriptedCall("meet", {"name": name}) for name in ("Ann", "Bo")] + [
            ScriptedCall("join", {"name": "Cy"})
        ]
        turn = harness.new_turn(
            [ScriptedReply(calls=scripted_calls), "All."], tools=[make_tool("meet", meet), make_tool("join", meet)]
        )
        await harness.run_turn(turn, turn.receive_message("Meet!"))
        result_texts = {
            result["tool_call_id"]: message_text(result)
            for result in list_tool_results(turn.records.questions[-1].messages)
        }
        calls = turn.records.messages[1].calls
        assert result_texts == {call.id: f"{call.arguments['name']} has met the others" for call in calls}

    @conformance_check
    async def test_call_failures_reach_the_model(self, harness: EngineConformanceHarness) -> None:
        """Unknown tools, invalid arguments and failures; the turn continues."""
        harness.require_player()
        scripted_calls = [
            ScriptedCall("subtract"),
            ScriptedCall("add", '{"a": 1, "b'),
            ScriptedCall("add", {"a": 1}),
            ScriptedCall("fail"),
        ]
        turn = harness.new_turn([ScriptedReply(calls=scripted_calls), "I give up."], tools=[ADD, FAIL])
        await harness.run_turn(turn, turn.receive_message("What is 1 + 2?"))
        result_texts = {
            result["tool_call_id"]: message_text(result)
            for result in list_tool_results(turn.records.questions[-1].messages)
        }
        calls = turn.records.messages[1].calls
        texts = [result_texts[call.id] for call in calls]
        for text, part in zip(texts, ("no tool subtract", '{"a": 1, "b', "missing: b", "disk is full"), strict=True):
            assert part in text, f"{part!r} is not in {text!r}"
        assert [event.call.id for event in turn.events_of(CallReady)] == [call.id for call in calls]
        assert turn.records.messages[-1].text == "I give up."

    @conformance_check
    async def test_repeated_call_is_a_new_call(self, harness: EngineConformanceHarness) -> None:
        """Repeated in a later reply, and in a later turn."""
        harness.require_player()
        add_reply = ScriptedReply(calls=[ScriptedCall("add", {"a": 1, "b": 2})])
        turn = harness.new_turn([add_reply, add_reply, "3.", add_reply, "3."], tools=[ADD])
        await harness.run_turn(turn, turn.receive_message("What is 1 + 2?"))
        await harness.run_turn(
            harness.track_turn(next_turn := turn.next_turn()), next_turn.receive_message("What is 1 + 2?")
        )
        assert len(next_turn.runs_of("add")) == 3
        assert [entry.result and entry.result.text for entry in next_turn.records.ledger.values()] == ["3", "3", "3"]
        assert len(list_tool_results(next_turn.records.questions[-1].messages)) == 3

    @conformance_check
    async def test_turn_cancelled_during_call(self, harness: EngineConformanceHarness) -> None:
        """The turn and the call end at once; the next message is answered, and the model learns of the cancellation."""
        harness.require_player()
        ended: list[str] = []

        async def wait(arguments: Mapping[str, Any]) -> str:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("wait")
            raise AssertionError

        calls = [ScriptedCall("wait"), ScriptedCall("add", {"a": 1, "b": 2})]
        turn = harness.new_turn([ScriptedReply("I wait.", calls=calls)], tools=[ADD, make_tool("wait", wait)])
        await harness.cancel_when(
            turn,
            turn.receive_message("Wait!"),
            lambda: bool(turn.runs_of("wait")) and bool(turn.events_of(CallResulted)),
        )
        await harness.player.wait_for_cancellations()
        assert ended == ["wait"]
        turn = harness.track_turn(turn.next_turn(["Here."]))
        await harness.run_turn(turn, turn.receive_message("Are you there?"))
        question = turn.records.questions[-1]
        assert question.text == "Are you there?"
        result_texts = [message_text(result) for result in list_tool_results(question.messages)]
        assert len(result_texts) == 2
        assert "3" in result_texts
        assert len(turn.runs_of("wait")) == 1

    @conformance_check
    async def test_cancelled_turn_can_be_continued(self, harness: EngineConformanceHarness) -> None:
        """A cancelled call is not run again, and the model learns of it."""
        harness.require_player()

        async def wait(arguments: Mapping[str, Any]) -> str:
            await asyncio.Event().wait()
            raise AssertionError

        turn = harness.new_turn(
            [ScriptedReply(calls=[ScriptedCall("wait")]), "It was cancelled."], tools=[make_tool("wait", wait)]
        )
        await harness.cancel_when(turn, turn.receive_message("Wait!"), lambda: bool(turn.runs_of("wait")))
        await harness.player.wait_for_cancellations()
        await harness.run_turn(turn.after_restart(), ContinueTurn())
        assert len(turn.runs_of("wait")) == 1
        assert turn.records.messages[-1].text == "It was cancelled."
