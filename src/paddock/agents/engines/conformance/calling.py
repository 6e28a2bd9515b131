"""Calls of tools: their results, many at a time, and what goes wrong with them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from paddock.agents.engines.base import Continue
from paddock.agents.engines.conformance.stage import Stage, check, results
from paddock.agents.engines.rehearsal import Answer, Wanted, tool, words
from paddock.model.session_events import CallReady, CallResulted


async def add(arguments: Mapping[str, Any]) -> str:
    return str(arguments["a"] + arguments["b"])


async def fail(arguments: Mapping[str, Any]) -> str:
    raise RuntimeError("the disk is full")


MEETING = 2.0
"""Seconds that calls of one answer may be apart."""
ADD = tool("add", add, required=["a", "b"])
FAIL = tool("fail", fail)


class Calling:
    """Calls of tools: their results, many at a time, and what goes wrong with them."""

    @check
    async def test_a_call_and_its_result(self, stage: Stage) -> None:
        """The model is told of the tools, and of the result under the call's own id."""
        stage.needs_a_cast()
        turn = stage.turn([Answer(calls=[Wanted("add", {"a": 1, "b": 2})]), "It is 3."], tools=[ADD, FAIL])
        await stage.play(turn, turn.says("What is 1 + 2?"))
        assert turn.runs("add") == [{"a": 1, "b": 2}]
        assert len(turn.records.questions) == 2
        first, second = turn.records.questions
        assert stage.engine.own_tools or {"add", "fail"} <= set(first.tools)
        (result,) = results(second.messages)
        (call,) = turn.records.messages[1].calls
        assert (result["tool_call_id"], words(result)) == (call.id, "3")
        kept = turn.records.ledger[call.id].result
        assert kept is not None
        assert (kept.text, kept.failed) == ("3", False)
        assert turn.records.messages[-1].text == "It is 3."

    @check
    async def test_calls_of_one_answer_run_at_the_same_time(self, stage: Stage) -> None:
        """Those of the same tool too, and each gets its own result."""
        stage.needs_a_cast()
        all_there = asyncio.Barrier(3)

        async def meet(arguments: Mapping[str, Any]) -> str:
            async with asyncio.timeout(MEETING):
                await all_there.wait()
            return f"{arguments['who']} has met the others"

        wanted = [Wanted("meet", {"who": who}) for who in ("Ann", "Bo")] + [Wanted("join", {"who": "Cy"})]
        turn = stage.turn([Answer(calls=wanted), "All."], tools=[tool("meet", meet), tool("join", meet)])
        await stage.play(turn, turn.says("Meet!"))
        found = {result["tool_call_id"]: words(result) for result in results(turn.records.questions[-1].messages)}
        calls = turn.records.messages[1].calls
        assert found == {call.id: f"{call.arguments['who']} has met the others" for call in calls}

    @check
    async def test_what_goes_wrong_with_a_call_is_told_to_the_model(self, stage: Stage) -> None:
        """Unknown tools, arguments that are no JSON or do not fit, and failures; the turn goes on."""
        stage.needs_a_cast()
        wanted = [Wanted("subtract"), Wanted("add", '{"a": 1, "b'), Wanted("add", {"a": 1}), Wanted("fail")]
        turn = stage.turn([Answer(calls=wanted), "I give up."], tools=[ADD, FAIL])
        await stage.play(turn, turn.says("What is 1 + 2?"))
        found = {result["tool_call_id"]: words(result) for result in results(turn.records.questions[-1].messages)}
        calls = turn.records.messages[1].calls
        told = [found[call.id] for call in calls]
        for text, part in zip(told, ("no tool subtract", '{"a": 1, "b', "missing: b", "disk is full"), strict=True):
            assert part in text, f"{part!r} is not in {text!r}"
        assert [event.call.id for event in turn.heard(CallReady)] == [call.id for call in calls]
        assert turn.records.messages[-1].text == "I give up."

    @check
    async def test_the_same_call_again_is_another_call(self, stage: Stage) -> None:
        """In a later answer, and in a later turn."""
        stage.needs_a_cast()
        sum_of = Answer(calls=[Wanted("add", {"a": 1, "b": 2})])
        turn = stage.turn([sum_of, sum_of, "3.", sum_of, "3."], tools=[ADD])
        await stage.play(turn, turn.says("What is 1 + 2?"))
        await stage.play(stage.follow(again := turn.following()), again.says("What is 1 + 2?"))
        assert len(again.runs("add")) == 3
        assert [entry.result and entry.result.text for entry in again.records.ledger.values()] == ["3", "3", "3"]
        assert len(results(again.records.questions[-1].messages)) == 3

    @check
    async def test_cancelled_within_a_call(self, stage: Stage) -> None:
        """It ends at once, the call too; then the next message is answered, and the model is told."""
        stage.needs_a_cast()
        ended: list[str] = []

        async def wait(arguments: Mapping[str, Any]) -> str:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("wait")
            raise AssertionError

        wanted = [Wanted("wait"), Wanted("add", {"a": 1, "b": 2})]
        turn = stage.turn([Answer("I wait.", calls=wanted)], tools=[ADD, tool("wait", wait)])
        await stage.cancel(turn, turn.says("Wait!"), lambda: bool(turn.runs("wait")) and bool(turn.heard(CallResulted)))
        await stage.cast.rest()
        assert ended == ["wait"]
        turn = stage.follow(turn.following(["Here."]))
        await stage.play(turn, turn.says("Are you there?"))
        question = turn.records.questions[-1]
        assert question.text == "Are you there?"
        told = [words(result) for result in results(question.messages)]
        assert len(told) == 2
        assert "3" in told
        assert len(turn.runs("wait")) == 1

    @check
    async def test_cancelled_and_continued(self, stage: Stage) -> None:
        """A call that was cancelled is not run again; the model is told of it."""
        stage.needs_a_cast()

        async def wait(arguments: Mapping[str, Any]) -> str:
            await asyncio.Event().wait()
            raise AssertionError

        turn = stage.turn([Answer(calls=[Wanted("wait")]), "It was cancelled."], tools=[tool("wait", wait)])
        await stage.cancel(turn, turn.says("Wait!"), lambda: bool(turn.runs("wait")))
        await stage.cast.rest()
        await stage.play(turn.reborn(), Continue())
        assert len(turn.runs("wait")) == 1
        assert turn.records.messages[-1].text == "It was cancelled."
