"""The server dies, at any change of its records, and the engine goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal

from paddock.agents.engines.base import Continue, Given
from paddock.agents.engines.conformance.stage import Stage, check
from paddock.agents.engines.rehearsal import Answer, Rehearsal, Wanted, tool
from paddock.model.session_events import (
    ApprovalRequired,
    CallReady,
    CallResulted,
    CallRunning,
    MessageEnded,
    MessageStarted,
)

RESTART = Continue(cause="restart")


async def echo(arguments: Mapping[str, Any]) -> str:
    return f"ran {arguments}"


ONCE = [tool(name, echo) for name in ("write", "send", "add")]
TOOLS = [*ONCE, tool("look", echo, effect="none")]
SCRIPT = [
    Answer(
        "I begin.", thought="First this.", calls=[Wanted("write", {"n": 1}), Wanted("look"), Wanted("add", {"n": 1})]
    ),
    Answer(calls=[Wanted("send", {"n": 2}), Wanted("nothing")]),
    "All done.",
]
TEXTS = ["I begin.", "", "All done."]


class Surviving:
    """The server dies, at any change of its records, and the engine goes on."""

    @check
    async def test_killed_before_any_change(self, stage: Stage) -> None:
        """What was not recorded is done again, once."""
        stage.needs_a_cast()
        await self._killed_everywhere(stage, "before")

    @check
    async def test_killed_after_any_change(self, stage: Stage) -> None:
        """What was recorded is not done again."""
        stage.needs_a_cast()
        await self._killed_everywhere(stage, "after")

    @check
    async def test_killed_twice_at_any_change(self, stage: Stage) -> None:
        """And a second time as soon as it goes on."""
        stage.needs_a_cast()
        for dies_after in stage.deaths(shift=2):
            turn, given = self._begin(stage, dies_after=dies_after)
            await stage.dies(turn, given)
            if not turn.dead:
                break
            second = turn.reborn(dies_after=1)
            await stage.dies(second, RESTART)
            if second.dead:
                await stage.play(second.reborn(), RESTART)
            self._as_if_nothing_had_happened(turn)
            await stage.leave(turn)

    @check
    async def test_killed_in_a_later_turn(self, stage: Stage) -> None:
        """It goes on in that turn, and knows the earlier one; also if it died before it began."""
        stage.needs_a_cast()
        for dies_after in stage.deaths(shift=3):
            first = stage.turn(SCRIPT, tools=TOOLS, ask=["write"])
            await stage.play(first, first.says("First."))
            turn = first.following([Answer(calls=[Wanted("add", {"n": 9})]), "Nine."], dies_after=dies_after)
            await stage.dies(turn, turn.says("Add nine."))
            if not turn.dead:
                break
            await stage.play(turn.reborn(), RESTART)
            assert turn.records.messages[-1].text == "Nine."
            asked = turn.records.questions[-1].messages
            people = [message for message in asked if message["role"] == "user"]
            assert len(people) == 2, f"each message of a person is read once: {people}"
            assert len(turn.runs("write")) == 1
            await stage.leave(turn)

    @check
    async def test_killed_with_a_message_unread(self, stage: Stage) -> None:
        """What was written meanwhile is read after the restart, once."""
        stage.needs_a_cast()
        for dies_after in stage.deaths(shift=4):
            turn, given = self._begin(stage, dies_after=dies_after)
            await stage.dies(turn, given)
            if not turn.dead:
                break
            reborn = turn.reborn(script=[*SCRIPT, "Quickly done."])
            reborn.write("Be quick.")
            await stage.play(reborn, RESTART)
            if "Be quick." not in str(reborn.records.questions[-1].messages):
                await stage.play(reborn, Continue())
            asked = reborn.records.questions[-1].messages
            assert str(asked).count("Be quick.") == 1, f"after {dies_after} changes: {asked}"
            self._each_ran_once(reborn)
            await stage.leave(reborn)

    @check
    async def test_continued_when_nothing_is_left_to_do(self, stage: Stage) -> None:
        """It was killed after its last word, or somebody presses a button: it may say something, but calls nothing."""
        stage.needs_a_cast()
        turn, given = self._begin(stage)
        await stage.play(turn, given)
        ran = list(turn.records.runs)
        await stage.play(turn.reborn(), RESTART)
        assert turn.records.runs == ran
        assert len(turn.records.questions) == len(SCRIPT)

    async def _killed_everywhere(self, stage: Stage, dies: Literal["before", "after"]) -> None:
        for dies_after in stage.deaths(shift=dies == "after"):
            turn, given = self._begin(stage, dies_after=dies_after, dies=dies)
            await stage.dies(turn, given)
            if not turn.dead:
                assert dies_after > len(SCRIPT), "a turn has more changes than this"
                break
            await stage.play(turn.reborn(), RESTART)
            self._as_if_nothing_had_happened(turn)
            await stage.leave(turn)

    def _begin(self, stage: Stage, **settings: Any) -> tuple[Rehearsal, Given]:
        turn = stage.turn(SCRIPT, tools=TOOLS, ask=["write"], **settings)
        return turn, turn.says("Do it all.")

    def _as_if_nothing_had_happened(self, turn: Rehearsal) -> None:
        records = turn.records
        spoken = [message for message in records.messages if message.role == "assistant" and not message.cut]
        assert [message.text for message in spoken] == TEXTS
        asked = Counter(question.digest for question in records.questions)
        assert len(records.questions) <= len(TEXTS) + 2, "the model was asked again what it had answered"
        assert len(asked) == len(TEXTS), "the model was asked the same in other words after the restart"
        self._each_ran_once(turn)
        told_once = Counter(
            [(MessageEnded, event.message_id) for event in turn.heard(MessageEnded)]
            + [(MessageStarted, event.message_id) for event in turn.heard(MessageStarted)]
            + [(CallReady, event.call.id) for event in turn.heard(CallReady)]
            + [(CallRunning, event.call_id) for event in turn.heard(CallRunning)]
            + [(CallResulted, event.call_id) for event in turn.heard(CallResulted)]
            + [(ApprovalRequired, event.approval.call_id) for event in turn.heard(ApprovalRequired)]
        )
        assert set(told_once.values()) == {1}, f"told twice: {told_once}"
        assert len(turn.heard(MessageStarted)) == len(turn.heard(MessageEnded)), "a message has no end"

    def _each_ran_once(self, turn: Rehearsal) -> None:
        records = turn.records
        for each in ONCE:
            lost = [
                entry
                for entry in records.ledger.values()
                if entry.call.name == each.spec.name and entry.result and "server stopped" in entry.result.text
            ]
            runs = len(turn.runs(each.spec.name))
            assert runs <= 1, f"{each.spec.name} was run {runs} times"
            assert runs == 1 or lost, f"{each.spec.name} was not run"
        for call in records.ledger.values():
            assert call.result is not None, f"{call.call} has no result"
