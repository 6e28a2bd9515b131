"""What persons decide about calls."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from paddock.agents.engines.base import Continue
from paddock.agents.engines.conformance.stage import SOON, Stage, approve, check, results
from paddock.agents.engines.rehearsal import Answer, Killed, Rehearsal, Wanted, tool, words
from paddock.model.session_events import ApprovalRequired
from paddock.model.sessions import Approval


async def echo(arguments: Mapping[str, Any]) -> str:
    return f"ran {arguments}"


TOOLS = [tool(name, echo) for name in ("write", "send", "look")]
BOTH = Answer(calls=[Wanted("write", {"path": "a"}), Wanted("send", {"to": "b"})])


async def nobody(turn: Rehearsal) -> list[Approval]:
    raise AssertionError(f"persons were asked: {turn.pending}")


class Deciding:
    """What persons decide about calls."""

    @check
    async def test_approved(self, stage: Stage) -> None:
        """It is run once, after the decision."""
        stage.needs_a_cast()
        turn = stage.turn([Answer(calls=[Wanted("write", {"path": "a"})]), "Written."], tools=TOOLS, ask=["write"])

        async def decide(turn: Rehearsal) -> list[Approval]:
            assert turn.runs("write") == []
            return await approve(turn)

        await stage.play(turn, turn.says("Write it."), decide)
        assert turn.runs("write") == [{"path": "a"}]
        assert len(turn.heard(ApprovalRequired)) == 1
        assert turn.records.messages[-1].text == "Written."

    @check
    async def test_what_needs_no_decision_does_not_wait(self, stage: Stage) -> None:
        """Calls of the same answer that nobody has to decide are run meanwhile."""
        stage.needs_a_cast()
        wanted = [Wanted("write"), Wanted("look"), Wanted("write")]
        turn = stage.turn([Answer(calls=wanted), "Written."], tools=TOOLS, ask=["write"])

        async def decide(turn: Rehearsal) -> list[Approval]:
            await turn.until(lambda: bool(turn.runs("look")) and len(turn.heard(ApprovalRequired)) == 2)
            return await approve(turn)

        await stage.play(turn, turn.says("Write it."), decide)
        assert len(turn.runs("write")) == 2

    @check
    async def test_edited(self, stage: Stage) -> None:
        """The tool sees what the person has made of the arguments."""
        stage.needs_our_tools("its program is told yes or no, and runs what it wanted or nothing")
        turn = stage.turn([Answer(calls=[Wanted("write", {"path": "a"})]), "Written."], tools=TOOLS, ask=["write"])

        async def decide(turn: Rehearsal) -> list[Approval]:
            return [await turn.decide(each, "edit", arguments={"path": "b"}) for each in turn.pending]

        await stage.play(turn, turn.says("Write it."), decide)
        assert turn.runs("write") == [{"path": "b"}]
        assert "'b'" in words(results(turn.records.questions[-1].messages)[0])

    @check
    async def test_rejected(self, stage: Stage) -> None:
        """It is not run, and the model is told why."""
        stage.needs_a_cast()
        turn = stage.turn([BOTH, *self._refused(stage)], tools=TOOLS, ask=["write"])

        async def decide(turn: Rehearsal) -> list[Approval]:
            return [await turn.decide(each, "reject", reason="not on a Sunday") for each in turn.pending]

        await stage.play(turn, turn.says("Write it."), decide)
        assert turn.runs("write") == []
        assert turn.runs("send") == [{"to": "b"}]
        refused = [entry.result for entry in turn.records.ledger.values() if entry.result and entry.result.refused]
        assert [("not on a Sunday" in result.text) for result in refused] == [True]
        asked = turn.records.questions[-1].messages
        assert "not on a Sunday" in "".join(
            words(each) for each in (asked if stage.cast.told_later else results(asked))
        )
        assert turn.records.messages[-1].text == "Then not."

    @check
    async def test_answered(self, stage: Stage) -> None:
        """The person's words are the result of the call; so are those to a question of the agent."""
        stage.needs_our_tools("its program is told yes or no, and what came of a call it knows from the tool alone")
        wanted = [Wanted("write", {"path": "a"}), Wanted("ask_user", {"question": "Which?"})]
        asks = tool("ask_user", echo, required=["question"])
        turn = stage.turn([Answer(calls=wanted), "I see."], tools=[*TOOLS, asks], ask=["write"])

        async def decide(turn: Rehearsal) -> list[Approval]:
            return [await turn.decide(each, "answer", reason=f"on {each.name}: I did it") for each in turn.pending]

        await stage.play(turn, turn.says("Write it."), decide)
        assert turn.runs("write") == turn.runs("ask_user") == []
        told = [words(result) for result in results(turn.records.questions[-1].messages)]
        assert told == ["on write: I did it", "on ask_user: I did it"]

    @check
    async def test_denied_by_the_policy(self, stage: Stage) -> None:
        """Nobody is asked, and the model is told."""
        stage.needs_a_cast()
        turn = stage.turn([BOTH, *self._refused(stage)], tools=TOOLS, deny=["write"])
        await stage.play(turn, turn.says("Write it."), nobody)
        assert turn.runs("write") == []
        assert turn.records.messages[-1].text == "Then not."

    @check
    async def test_two_that_are_decided_one_after_the_other(self, stage: Stage) -> None:
        """The second first: it is run while the first one waits."""
        stage.needs_a_cast()
        turn = stage.turn([BOTH, "All done."], tools=TOOLS, ask=["*"])

        async def decide(turn: Rehearsal) -> list[Approval]:
            await turn.until(lambda: len(turn.heard(ApprovalRequired)) == 2)
            if len(turn.pending) == 2:
                return [await turn.decide(turn.pending[1])]
            await turn.until(lambda: bool(turn.runs("send")))
            assert turn.runs("write") == []
            return await approve(turn)

        await stage.play(turn, turn.says("Write and send it."), decide)
        assert [name for name, _ in turn.records.runs] == ["send", "write"]
        assert len(results(turn.records.questions[-1].messages)) == 2
        assert len(turn.records.questions) == 2

    @check
    async def test_what_waits_survives_a_restart(self, stage: Stage) -> None:
        """And is decided after it."""
        stage.needs_a_cast()
        turn = await self._killed_while_waiting(stage)
        reborn = turn.reborn()
        await stage.play(reborn, Continue(cause="restart"))
        self._all_done(reborn)

    @check
    async def test_decided_before_the_engine_runs_again(self, stage: Stage) -> None:
        """All at once, after a restart."""
        stage.needs_a_cast()
        turn = await self._killed_while_waiting(stage)
        reborn = turn.reborn()
        await stage.play(reborn, reborn.decisions(*await approve(reborn)), nobody)
        self._all_done(reborn)

    @check
    async def test_one_decided_before_the_engine_runs_again(self, stage: Stage) -> None:
        """And the other while it does."""
        stage.needs_a_cast()
        turn = await self._killed_while_waiting(stage)
        reborn = turn.reborn()
        await stage.play(reborn, reborn.decisions(await reborn.decide(reborn.pending[1])))
        self._all_done(reborn)

    @check
    async def test_cancelled_while_it_waits(self, stage: Stage) -> None:
        """Nothing is run, and the next message is answered."""
        stage.needs_a_cast()
        turn = stage.turn([BOTH], tools=TOOLS, ask=["*"])
        await self._wait(stage, turn)
        turn.abandon()
        turn = stage.follow(turn.following(["Fine."]))
        await stage.play(turn, turn.says("Leave it."), nobody)
        assert turn.records.runs == []
        assert turn.records.questions[-1].text == "Leave it."

    def _refused(self, stage: Stage) -> list[str]:
        """What the model says once it knows that something was refused, and to whatever it is told of it later."""
        return ["It was refused.", "Then not."] if stage.cast.told_later else ["Then not."]

    async def _wait(self, stage: Stage, turn: Rehearsal, *, kill: bool = False) -> None:
        """Run a turn until two calls wait, and end it there."""
        working = await stage.reach(turn, turn.says("Write and send it."), lambda: len(turn.pending) == 2)
        if kill:
            await turn.kill()
        else:
            working.cancel()
        await asyncio.wait([working], timeout=SOON)
        if not working.cancelled():
            error = working.exception()
            assert error is None or isinstance(error, Killed), f"not ended by its death: {error!r}"

    async def _killed_while_waiting(self, stage: Stage) -> Rehearsal:
        turn = stage.turn([BOTH, "All done."], tools=TOOLS, ask=["*"])
        await self._wait(stage, turn, kill=True)
        return turn

    def _all_done(self, turn: Rehearsal) -> None:
        assert sorted(name for name, _ in turn.records.runs) == ["send", "write"]
        assert len(turn.heard(ApprovalRequired)) == 2
        assert len(turn.records.questions) == 2
        assert turn.records.messages[-1].text == "All done."
