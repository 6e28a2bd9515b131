"""Checks of approvals."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from paddock.agents.engines.base import ContinueTurn
from paddock.model.session_events import ApprovalRequired
from paddock.model.sessions import Approval
from paddock.testing.engines.conformance_harness import (
    STEP_TIMEOUT,
    EngineConformanceHarness,
    approve_all_pending,
    conformance_check,
    list_tool_results,
)
from paddock.testing.in_memory_turn import (
    InMemoryTurn,
    ScriptedCall,
    ScriptedReply,
    ServerKilled,
    make_tool,
    message_text,
)


async def echo(arguments: Mapping[str, Any]) -> str:
    return f"ran {arguments}"


TOOLS = [make_tool(name, echo) for name in ("write", "send", "look")]
WRITE_AND_SEND = ScriptedReply(calls=[ScriptedCall("write", {"path": "a"}), ScriptedCall("send", {"to": "b"})])


async def refuse_to_decide(turn: InMemoryTurn) -> list[Approval]:
    raise AssertionError(f"approvals were requested: {turn.pending_approvals}")


class ApprovalChecks:
    """Checks of approvals."""

    @conformance_check
    async def test_approved_call_runs_once(self, harness: EngineConformanceHarness) -> None:
        """An approved call runs once, after the decision."""
        harness.require_player()
        turn = harness.new_turn(
            [ScriptedReply(calls=[ScriptedCall("write", {"path": "a"})]), "Written."], tools=TOOLS, ask=["write"]
        )

        async def decide(turn: InMemoryTurn) -> list[Approval]:
            assert turn.runs_of("write") == []
            return await approve_all_pending(turn)

        await harness.run_turn(turn, turn.receive_message("Write it."), decide)
        assert turn.runs_of("write") == [{"path": "a"}]
        assert len(turn.events_of(ApprovalRequired)) == 1
        assert turn.records.messages[-1].text == "Written."

    @conformance_check
    async def test_calls_without_approval_do_not_wait(self, harness: EngineConformanceHarness) -> None:
        """Calls of the same reply that need no approval run meanwhile."""
        harness.require_player()
        calls = [ScriptedCall("write"), ScriptedCall("look"), ScriptedCall("write")]
        turn = harness.new_turn([ScriptedReply(calls=calls), "Written."], tools=TOOLS, ask=["write"])

        async def decide(turn: InMemoryTurn) -> list[Approval]:
            await turn.wait_until(lambda: bool(turn.runs_of("look")) and len(turn.events_of(ApprovalRequired)) == 2)
            return await approve_all_pending(turn)

        await harness.run_turn(turn, turn.receive_message("Write it."), decide)
        assert len(turn.runs_of("write")) == 2

    @conformance_check
    async def test_edited_arguments_are_used(self, harness: EngineConformanceHarness) -> None:
        """The tool gets the edited arguments."""
        harness.require_paddock_tools("its program gets yes or no, and runs the original call or nothing")
        turn = harness.new_turn(
            [ScriptedReply(calls=[ScriptedCall("write", {"path": "a"})]), "Written."], tools=TOOLS, ask=["write"]
        )

        async def decide(turn: InMemoryTurn) -> list[Approval]:
            return [await turn.decide(each, "edit", arguments={"path": "b"}) for each in turn.pending_approvals]

        await harness.run_turn(turn, turn.receive_message("Write it."), decide)
        assert turn.runs_of("write") == [{"path": "b"}]
        assert "'b'" in message_text(list_tool_results(turn.records.questions[-1].messages)[0])

    @conformance_check
    async def test_rejected_call_is_not_run(self, harness: EngineConformanceHarness) -> None:
        """A rejected call is not run, and the model gets the reason."""
        harness.require_player()
        turn = harness.new_turn([WRITE_AND_SEND, *self._replies_after_refusal(harness)], tools=TOOLS, ask=["write"])

        async def decide(turn: InMemoryTurn) -> list[Approval]:
            return [await turn.decide(each, "reject", reason="not on a Sunday") for each in turn.pending_approvals]

        await harness.run_turn(turn, turn.receive_message("Write it."), decide)
        assert turn.runs_of("write") == []
        assert turn.runs_of("send") == [{"to": "b"}]
        refused = [entry.result for entry in turn.records.ledger.values() if entry.result and entry.result.refused]
        assert [("not on a Sunday" in result.text) for result in refused] == [True]
        question_messages = turn.records.questions[-1].messages
        assert "not on a Sunday" in "".join(
            message_text(each)
            for each in (
                question_messages if harness.player.reads_after_reply else list_tool_results(question_messages)
            )
        )
        assert turn.records.messages[-1].text == "Then not."

    @conformance_check
    async def test_answer_is_the_result(self, harness: EngineConformanceHarness) -> None:
        """The person's answer is the result of the call, also for a question of the agent."""
        harness.require_paddock_tools("its program gets yes or no, and learns the result of a call from the tool alone")
        calls = [ScriptedCall("write", {"path": "a"}), ScriptedCall("ask_user", {"question": "Which?"})]
        ask_user = make_tool("ask_user", echo, required=["question"])
        turn = harness.new_turn([ScriptedReply(calls=calls), "I see."], tools=[*TOOLS, ask_user], ask=["write"])

        async def decide(turn: InMemoryTurn) -> list[Approval]:
            return [
                await turn.decide(each, "answer", reason=f"on {each.name}: I did it") for each in turn.pending_approvals
            ]

        await harness.run_turn(turn, turn.receive_message("Write it."), decide)
        assert turn.runs_of("write") == turn.runs_of("ask_user") == []
        result_texts = [message_text(result) for result in list_tool_results(turn.records.questions[-1].messages)]
        assert result_texts == ["on write: I did it", "on ask_user: I did it"]

    @conformance_check
    async def test_denied_call_needs_no_approval(self, harness: EngineConformanceHarness) -> None:
        """No approval is requested, and the model is informed."""
        harness.require_player()
        turn = harness.new_turn([WRITE_AND_SEND, *self._replies_after_refusal(harness)], tools=TOOLS, deny=["write"])
        await harness.run_turn(turn, turn.receive_message("Write it."), refuse_to_decide)
        assert turn.runs_of("write") == []
        assert turn.records.messages[-1].text == "Then not."

    @conformance_check
    async def test_two_approvals_decided_one_after_the_other(self, harness: EngineConformanceHarness) -> None:
        """The second call is decided first, and runs while the first one waits."""
        harness.require_player()
        turn = harness.new_turn([WRITE_AND_SEND, "All done."], tools=TOOLS, ask=["*"])

        async def decide(turn: InMemoryTurn) -> list[Approval]:
            await turn.wait_until(lambda: len(turn.events_of(ApprovalRequired)) == 2)
            if len(turn.pending_approvals) == 2:
                return [await turn.decide(turn.pending_approvals[1])]
            await turn.wait_until(lambda: bool(turn.runs_of("send")))
            assert turn.runs_of("write") == []
            return await approve_all_pending(turn)

        await harness.run_turn(turn, turn.receive_message("Write and send it."), decide)
        assert [name for name, _ in turn.records.tool_runs] == ["send", "write"]
        assert len(list_tool_results(turn.records.questions[-1].messages)) == 2
        assert len(turn.records.questions) == 2

    @conformance_check
    async def test_pending_approval_survives_restart(self, harness: EngineConformanceHarness) -> None:
        """The approval is decided after the restart."""
        harness.require_player()
        turn = await self._turn_killed_while_waiting(harness)
        restarted = turn.after_restart()
        await harness.run_turn(restarted, ContinueTurn(cause="restart"))
        self._assert_all_done(restarted)

    @conformance_check
    async def test_all_decided_before_engine_restarts(self, harness: EngineConformanceHarness) -> None:
        """All approvals are decided at once, before the engine runs again after a restart."""
        harness.require_player()
        turn = await self._turn_killed_while_waiting(harness)
        restarted = turn.after_restart()
        await harness.run_turn(restarted, restarted.decisions(*await approve_all_pending(restarted)), refuse_to_decide)
        self._assert_all_done(restarted)

    @conformance_check
    async def test_one_decided_before_engine_restarts(self, harness: EngineConformanceHarness) -> None:
        """One approval is decided before the engine runs again, the other one meanwhile."""
        harness.require_player()
        turn = await self._turn_killed_while_waiting(harness)
        restarted = turn.after_restart()
        await harness.run_turn(restarted, restarted.decisions(await restarted.decide(restarted.pending_approvals[1])))
        self._assert_all_done(restarted)

    @conformance_check
    async def test_turn_cancelled_while_approval_is_pending(self, harness: EngineConformanceHarness) -> None:
        """Nothing is run, and the next message is answered."""
        harness.require_player()
        turn = harness.new_turn([WRITE_AND_SEND], tools=TOOLS, ask=["*"])
        await self._wait_for_approvals(harness, turn)
        turn.abandon_calls()
        turn = harness.track_turn(turn.next_turn(["Fine."]))
        await harness.run_turn(turn, turn.receive_message("Leave it."), refuse_to_decide)
        assert turn.records.tool_runs == []
        assert turn.records.questions[-1].text == "Leave it."

    def _replies_after_refusal(self, harness: EngineConformanceHarness) -> list[str]:
        """Return the scripted replies after a refusal, including one to a reason that arrives later."""
        return ["It was refused.", "Then not."] if harness.player.reads_after_reply else ["Then not."]

    async def _wait_for_approvals(
        self, harness: EngineConformanceHarness, turn: InMemoryTurn, *, kill: bool = False
    ) -> None:
        """Run a turn until two calls wait, and end it there."""
        run_task = await harness.run_until(
            turn, turn.receive_message("Write and send it."), lambda: len(turn.pending_approvals) == 2
        )
        if kill:
            await turn.kill()
        else:
            run_task.cancel()
        await asyncio.wait([run_task], timeout=STEP_TIMEOUT)
        if not run_task.cancelled():
            error = run_task.exception()
            assert error is None or isinstance(error, ServerKilled), f"not ended by its death: {error!r}"

    async def _turn_killed_while_waiting(self, harness: EngineConformanceHarness) -> InMemoryTurn:
        turn = harness.new_turn([WRITE_AND_SEND, "All done."], tools=TOOLS, ask=["*"])
        await self._wait_for_approvals(harness, turn, kill=True)
        return turn

    def _assert_all_done(self, turn: InMemoryTurn) -> None:
        assert sorted(name for name, _ in turn.records.tool_runs) == ["send", "write"]
        assert len(turn.events_of(ApprovalRequired)) == 2
        assert len(turn.records.questions) == 2
        assert turn.records.messages[-1].text == "All done."
