"""Checks of crashes: the server is killed at any change of its records, and the engine continues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal

from paddock.agents.engines.base import ContinueTurn, TurnInput
from paddock.model.session_events import (
    ApprovalRequired,
    CallReady,
    CallResulted,
    CallRunning,
    MessageEnded,
    MessageStarted,
)
from paddock.testing.engines.conformance_harness import EngineConformanceHarness, conformance_check
from paddock.testing.in_memory_turn import InMemoryTurn, ScriptedCall, ScriptedReply, make_tool

RESTART = ContinueTurn(cause="restart")


async def echo(arguments: Mapping[str, Any]) -> str:
    return f"ran {arguments}"


RUN_ONCE_TOOLS = [make_tool(name, echo) for name in ("write", "send", "add")]
TOOLS = [*RUN_ONCE_TOOLS, make_tool("look", echo, effect="none")]
SCRIPT = [
    ScriptedReply(
        "I begin.",
        thought="First this.",
        calls=[ScriptedCall("write", {"n": 1}), ScriptedCall("look"), ScriptedCall("add", {"n": 1})],
    ),
    ScriptedReply(calls=[ScriptedCall("send", {"n": 2}), ScriptedCall("nothing")]),
    "All done.",
]
REPLY_TEXTS = ["I begin.", "", "All done."]


class CrashChecks:
    """Checks of crashes: the server is killed at any change of its records, and the engine continues."""

    @conformance_check
    async def test_killed_before_any_change(self, harness: EngineConformanceHarness) -> None:
        """Work that was not recorded is repeated once."""
        harness.require_player()
        await self._kill_at_every_change(harness, "before")

    @conformance_check
    async def test_killed_after_any_change(self, harness: EngineConformanceHarness) -> None:
        """Recorded work is not repeated."""
        harness.require_player()
        await self._kill_at_every_change(harness, "after")

    @conformance_check
    async def test_killed_again_after_any_change(self, harness: EngineConformanceHarness) -> None:
        """The server is killed a second time as soon as the engine continues."""
        harness.require_player()
        for crash_after in harness.kill_points(shift=2):
            turn, turn_input = self._new_turn(harness, crash_after=crash_after)
            await harness.run_until_killed(turn, turn_input)
            if not turn.is_dead:
                break
            second_turn = turn.after_restart(crash_after=1)
            await harness.run_until_killed(second_turn, RESTART)
            if second_turn.is_dead:
                await harness.run_turn(second_turn.after_restart(), RESTART)
            self._assert_same_as_without_crash(turn)
            await harness.discard(turn)

    @conformance_check
    async def test_killed_in_a_later_turn(self, harness: EngineConformanceHarness) -> None:
        """The engine continues in that turn and knows the earlier one, also if it was killed before it began."""
        harness.require_player()
        for crash_after in harness.kill_points(shift=3):
            first_turn = harness.new_turn(SCRIPT, tools=TOOLS, ask=["write"])
            await harness.run_turn(first_turn, first_turn.receive_message("First."))
            turn = first_turn.next_turn(
                [ScriptedReply(calls=[ScriptedCall("add", {"n": 9})]), "Nine."], crash_after=crash_after
            )
            await harness.run_until_killed(turn, turn.receive_message("Add nine."))
            if not turn.is_dead:
                break
            await harness.run_turn(turn.after_restart(), RESTART)
            assert turn.records.messages[-1].text == "Nine."
            messages = turn.records.questions[-1].messages
            user_messages = [message for message in messages if message["role"] == "user"]
            assert len(user_messages) == 2, f"each message of a person is read once: {user_messages}"
            assert len(turn.runs_of("write")) == 1
            await harness.discard(turn)

    @conformance_check
    async def test_killed_with_unread_message(self, harness: EngineConformanceHarness) -> None:
        """A message written meanwhile is read once after the restart."""
        harness.require_player()
        for crash_after in harness.kill_points(shift=4):
            turn, turn_input = self._new_turn(harness, crash_after=crash_after)
            await harness.run_until_killed(turn, turn_input)
            if not turn.is_dead:
                break
            restarted = turn.after_restart(script=[*SCRIPT, "Quickly done."])
            restarted.write_message("Be quick.")
            await harness.run_turn(restarted, RESTART)
            if "Be quick." not in str(restarted.records.questions[-1].messages):
                await harness.run_turn(restarted, ContinueTurn())
            messages = restarted.records.questions[-1].messages
            assert str(messages).count("Be quick.") == 1, f"after {crash_after} changes: {messages}"
            self._assert_each_ran_once(restarted)
            await harness.discard(restarted)

    @conformance_check
    async def test_continued_when_nothing_is_left(self, harness: EngineConformanceHarness) -> None:
        """Continued after the last reply, the agent may write a message, but makes no calls."""
        harness.require_player()
        turn, turn_input = self._new_turn(harness)
        await harness.run_turn(turn, turn_input)
        runs_before = list(turn.records.tool_runs)
        await harness.run_turn(turn.after_restart(), RESTART)
        assert turn.records.tool_runs == runs_before
        assert len(turn.records.questions) == len(SCRIPT)

    async def _kill_at_every_change(
        self, harness: EngineConformanceHarness, crash_when: Literal["before", "after"]
    ) -> None:
        for crash_after in harness.kill_points(shift=crash_when == "after"):
            turn, turn_input = self._new_turn(harness, crash_after=crash_after, crash_when=crash_when)
            await harness.run_until_killed(turn, turn_input)
            if not turn.is_dead:
                assert crash_after > len(SCRIPT), "a turn has more changes than this"
                break
            await harness.run_turn(turn.after_restart(), RESTART)
            self._assert_same_as_without_crash(turn)
            await harness.discard(turn)

    def _new_turn(self, harness: EngineConformanceHarness, **settings: Any) -> tuple[InMemoryTurn, TurnInput]:
        turn = harness.new_turn(SCRIPT, tools=TOOLS, ask=["write"], **settings)
        return turn, turn.receive_message("Do it all.")

    def _assert_same_as_without_crash(self, turn: InMemoryTurn) -> None:
        records = turn.records
        replies = [message for message in records.messages if message.role == "assistant" and not message.cut]
        assert [message.text for message in replies] == REPLY_TEXTS
        digests = Counter(question.digest for question in records.questions)
        assert len(records.questions) <= len(REPLY_TEXTS) + 2, "the model was asked an answered question again"
        assert len(digests) == len(REPLY_TEXTS), "the model was asked a different question after the restart"
        self._assert_each_ran_once(turn)
        event_counts = Counter(
            [(MessageEnded, event.message_id) for event in turn.events_of(MessageEnded)]
            + [(MessageStarted, event.message_id) for event in turn.events_of(MessageStarted)]
            + [(CallReady, event.call.id) for event in turn.events_of(CallReady)]
            + [(CallRunning, event.call_id) for event in turn.events_of(CallRunning)]
            + [(CallResulted, event.call_id) for event in turn.events_of(CallResulted)]
            + [(ApprovalRequired, event.approval.call_id) for event in turn.events_of(ApprovalRequired)]
        )
        assert set(event_counts.values()) == {1}, f"emitted twice: {event_counts}"
        assert len(turn.events_of(MessageStarted)) == len(turn.events_of(MessageEnded)), "a message has no end"

    def _assert_each_ran_once(self, turn: InMemoryTurn) -> None:
        records = turn.records
        for each in RUN_ONCE_TOOLS:
            lost = [
                entry
                for entry in records.ledger.values()
                if entry.call.name == each.spec.name and entry.result and "server stopped" in entry.result.text
            ]
            runs = len(turn.runs_of(each.spec.name))
            assert runs <= 1, f"{each.spec.name} was run {runs} times"
            assert runs == 1 or lost, f"{each.spec.name} was not run"
        for call in records.ledger.values():
            assert call.result is not None, f"{call.call} has no result"
