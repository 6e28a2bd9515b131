"""The session centre: what is kept and told of turns, whatever happens to them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.unit.agents.centre import TENANT, Centre, PlannedEngine, answer, centre, done

from paddock.agents.engines.base import Continue, Decisions, Done, Given, Outcome, Paused, Turn, Undecided, UserMessage
from paddock.agents.sessions import NewSession
from paddock.errors import Conflict, Unavailable
from paddock.model.sessions import (
    ApprovalState,
    Call,
    Decision,
    SessionState,
)

pytestmark = pytest.mark.anyio


async def forever(turn: Turn, given: Given) -> Outcome:
    await turn.unread(())
    await asyncio.Event().wait()
    raise AssertionError


def calling(*calls: Call, wait: bool = False) -> Any:
    """Runs calls as the LangGraph engine does: those that can be, and stops where a person has to decide."""

    async def plan(turn: Turn, given: Given) -> Outcome:
        await turn.unread(())
        paused = False
        for call in calls:
            try:
                await turn.call(call, wait=wait)
            except Undecided:
                paused = True
        return Paused() if paused else Done()

    return plan


async def decide(at: Centre, session_id: str, *actions: str) -> None:
    pending = await at.calls.pending(session_id)
    decisions = [
        Decision(approval=each.id, digest=each.digest, action=action)
        for each, action in zip(pending, actions, strict=False)
    ]
    await at.sessions.decide(TENANT, session_id, decisions, "ann")


async def test_a_message_begins_a_turn_that_ends(tmp_path: Path) -> None:
    engine = PlannedEngine(done)
    async with centre(tmp_path, engine) as at:
        session = await at.begin()
        message = await at.say(session, "Hello\nthere")
        await at.ended(session)
        told = [event.type.value for event in await at.told(session)]
        assert told == [
            "session.created",
            "message.received",
            "session.changed",
            "session.state",
            "turn.started",
            "turn.ended",
            "session.state",
        ]
        assert engine.given == [UserMessage(message=message)] and message.turn == message.number == 1
        now = await at.now(session)
        assert (now.state, now.turn, now.title, now.error) == (SessionState.IDLE, 1, "Hello", None)
        second = await at.say(session, "And now?")
        await at.ended(session, turn=2)
        assert (second.turn, second.number) == (2, 2) and (await at.now(session)).title == "Hello"


async def test_a_message_while_it_works_is_kept_in_the_turn_and_never_left_unread(tmp_path: Path) -> None:
    looked, go_on = asyncio.Event(), asyncio.Event()

    async def late(turn: Turn, given: Given) -> Outcome:
        await turn.unread(())
        looked.set()
        await go_on.wait()
        return Done()

    engine = PlannedEngine(late, done)
    async with centre(tmp_path, engine) as at:
        session = await at.begin()
        await at.say(session, "one")
        await looked.wait()
        second = await at.say(session, "two")
        assert second.turn == 1
        waits = [event.data["waits"] for event in await at.told(session) if event.type == "message.received"]
        assert waits == [False, True]
        go_on.set()
        await at.ended(session)
        assert engine.given[1:] == [Continue()]
        assert await at.turns(session) == ["started message", "ended done"]


async def test_an_engine_that_never_reads_does_not_run_for_ever(tmp_path: Path) -> None:
    async def deaf(turn: Turn, given: Given) -> Outcome:
        if isinstance(given, UserMessage):
            await answer(turn, "I am talking")
            await started.wait()
        return Done()

    started = asyncio.Event()
    engine = PlannedEngine(deaf)
    async with centre(tmp_path, engine) as at:
        session = await at.begin()
        await at.say(session, "one")
        await at.say(session, "two")
        started.set()
        await at.ended(session)
        assert [type(given).__name__ for given in engine.given] == ["UserMessage", "Continue"]


async def test_the_same_request_is_one_message_and_one_session(tmp_path: Path) -> None:
    engine = PlannedEngine(done)
    async with centre(tmp_path, engine) as at:
        first, second = await asyncio.gather(
            *(at.sessions.create(TENANT, NewSession(title=title), "ann", request_key="k") for title in ("a", "b"))
        )
        assert first == second
        other = await at.sessions.create("other", NewSession(), "bob", request_key="k")
        assert other.id != first.id
        messages = await asyncio.gather(*(at.say(first, "hello", request_key="once") for _ in range(5)))
        await at.ended(first)
        assert len({message.id for message in messages}) == 1 and messages[0].number == 1
        assert (await at.say(first, "hello", request_key="once")).number == 1
        assert await at.turns(first) == ["started message", "ended done"] and len(engine.given) == 1


async def test_cancelling_ends_the_turn_and_what_it_waits_for(tmp_path: Path) -> None:
    look, do = Call(id="call-1", name="code_look"), Call(id="call-2", name="code_do")

    async def both(turn: Turn, given: Given) -> Outcome:
        await turn.unread(())
        await asyncio.gather(turn.call(look), turn.call(do))
        return Done()

    async with centre(tmp_path, PlannedEngine(both, done)) as at:
        at.toolbox.hold = asyncio.Event()
        session = await at.begin()
        await at.say(session, "go")
        await at.until(session, lambda event: event.type == "approval.required")
        await at.until(session, lambda event: event.type == "call.running")
        assert (await at.now(session)).state is SessionState.WAITING
        cancelled, again = await asyncio.gather(*(at.sessions.cancel(TENANT, session.id, "ann") for _ in range(2)))
        assert cancelled.state is again.state is SessionState.IDLE
        assert await at.turns(session) == ["started message", "ended cancelled"]
        told = await at.told(session)
        assert {event.data["call_id"] for event in told if event.type == "call.result"} == {"call-1", "call-2"}
        assert await at.calls.pending(session.id) == []
        await at.say(session, "and now")
        await at.ended(session, turn=2)


async def test_a_failed_turn_says_why_and_the_next_one_is_fine(tmp_path: Path) -> None:
    async def refused(turn: Turn, given: Given) -> Outcome:
        with pytest.raises(Undecided):
            await turn.call(Call(id="call-1", name="code_do"), wait=False)
        raise Unavailable("the model is gone")

    async def broken(turn: Turn, given: Given) -> Outcome:
        raise ZeroDivisionError

    async with centre(tmp_path, PlannedEngine(refused, broken, done)) as at:
        session = await at.begin()
        await at.say(session, "one")
        await at.ended(session, "failed")
        errors = [event.data for event in await at.told(session) if event.type == "turn.error"]
        assert errors == [{"code": "UNAVAILABLE", "message": "the model is gone", "fatal": True}]
        now = await at.now(session)
        assert (now.state, now.error) == (SessionState.IDLE, "the model is gone")
        assert await at.calls.pending(session.id) == []
        await at.say(session, "two")
        failed = await at.ended(session, "failed", turn=2)
        assert "ZeroDivision" not in failed.data["reason"] and "log" in failed.data["reason"]
        await at.say(session, "three")
        await at.ended(session, turn=3)
        assert (await at.now(session)).error is None


async def test_a_paused_turn_goes_on_with_each_decision(tmp_path: Path) -> None:
    calls = [Call(id=f"call-{number}", name="code_do", arguments={"n": number}) for number in range(2)]
    engine = PlannedEngine(calling(*calls))
    async with centre(tmp_path, engine) as at:
        session = await at.begin()
        await at.say(session, "go")
        await at.ended(session, "waiting")
        assert (await at.now(session)).state is SessionState.WAITING
        late = await at.say(session, "by the way")
        assert late.turn == 1 and len(engine.given) == 1
        await decide(at, session.id, "approve")
        await at.until(session, lambda event: event.type == "call.result")
        await at.until(session, lambda event: event.type == "turn.started" and event.data["cause"] == "decisions")
        assert at.toolbox.ran == ["call-0"]
        async with asyncio.timeout(5):
            while (await at.turns(session)).count("ended waiting") < 2:
                await asyncio.sleep(0.01)
        await decide(at, session.id, "reject")
        await at.ended(session)
        assert at.toolbox.ran == ["call-0"]
        given = [one.approvals for one in engine.given if isinstance(one, Decisions)]
        assert [[each.state for each in some] for some in given] == [[ApprovalState.APPROVED], [ApprovalState.REJECTED]]
        assert await at.turns(session) == [
            "started message",
            "ended waiting",
            "started decisions",
            "ended waiting",
            "started decisions",
            "ended done",
        ]


async def test_a_decision_that_comes_while_the_engine_pauses_is_not_missed(tmp_path: Path) -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(turn: Turn, given: Given) -> Outcome:
        await turn.unread(())
        with pytest.raises(Undecided):
            await turn.call(Call(id="call-0", name="code_do"), wait=False)
        asked.set()
        await go_on.wait()
        return Paused()

    engine = PlannedEngine(slowly, calling(Call(id="call-0", name="code_do")))
    async with centre(tmp_path, engine) as at:
        session = await at.begin()
        await at.say(session, "go")
        await asked.wait()
        await decide(at, session.id, "approve")
        go_on.set()
        await at.ended(session)
        assert at.toolbox.ran == ["call-0"] and isinstance(engine.given[-1], Decisions)
        assert await at.turns(session) == ["started message", "ended done"]


@pytest.mark.parametrize("all_of_them", [True, False])
async def test_a_decision_that_comes_when_the_turn_is_told_to_wait_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, all_of_them: bool
) -> None:
    calls = [Call(id=f"call-{number}", name="code_do", arguments={"n": number}) for number in range(2)]
    async with centre(tmp_path, PlannedEngine(calling(*calls))) as at:
        session = await at.begin()
        pending = at.calls.pending
        looks = 0

        async def meanwhile(session_id: str) -> Any:
            nonlocal looks
            looks += 1
            found = await pending(session_id)
            if "ended waiting" in await at.turns(session) and looks < 10:
                looks = 10
                monkeypatch.setattr(at.calls, "pending", pending)
                await decide(at, session.id, *["approve"] * (2 if all_of_them else 1))
            return found

        monkeypatch.setattr(at.calls, "pending", meanwhile)
        await at.say(session, "go")
        await at.until(session, lambda event: event.type == "call.result")
        if not all_of_them:
            async with asyncio.timeout(5):
                while (await at.turns(session)).count("ended waiting") < 2:
                    await asyncio.sleep(0.01)
            await decide(at, session.id, "approve")
        await at.ended(session)
        again = [] if all_of_them else ["ended waiting", "started decisions"]
        assert await at.turns(session) == [
            "started message",
            "ended waiting",
            "started decisions",
            *again,
            "ended done",
        ]
        assert at.toolbox.ran == ["call-0", "call-1"]


async def test_what_nobody_decides_in_time_lets_the_turn_go_on(tmp_path: Path) -> None:
    async with centre(tmp_path, PlannedEngine(calling(Call(id="call-0", name="code_do"))), approval_time=1) as at:
        session = await at.begin()
        await at.say(session, "go")
        await at.ended(session)
        assert at.toolbox.ran == [] and "started decisions" in await at.turns(session)


async def test_going_on_is_a_turn_of_its_own(tmp_path: Path) -> None:
    async def plan(turn: Turn, given: Given) -> Outcome:
        return await (forever if isinstance(given, UserMessage) else done)(turn, given)

    engine = PlannedEngine(plan)
    async with centre(tmp_path, engine) as at:
        session = await at.begin()
        with pytest.raises(Conflict, match="send a message"):
            await at.sessions.go_on(TENANT, session.id, "ann")
        await at.say(session, "one")
        with pytest.raises(Conflict, match="running"):
            await at.sessions.go_on(TENANT, session.id, "ann")
        await at.sessions.cancel(TENANT, session.id, "ann")
        assert (await at.sessions.go_on(TENANT, session.id, "ann")).state is SessionState.RUNNING
        await at.ended(session, turn=2)
        assert engine.given[-1] == Continue() and (await at.now(session)).turn == 2
        assert await at.turns(session) == ["started message", "ended cancelled", "started continue", "ended done"]
        said = await at.sessions.messages(TENANT, session.id)
        assert [(message.role, message.turn) for message in said] == [("user", 1), ("note", 2)]
        assert said[1].text == "Go on from where you were."


async def test_a_fork_goes_on_with_all_that_was_said(tmp_path: Path) -> None:
    histories: list[tuple[list[str], list[str]]] = []

    async def plan(turn: Turn, given: Given) -> Outcome:
        before, now = await turn.history(), await turn.unread(())
        histories.append(([message.text for message in before], [message.role for message in now]))
        if isinstance(given, UserMessage):
            await answer(turn, "ready")
        return Done()

    async with centre(tmp_path, PlannedEngine(plan)) as at:
        session = await at.begin()
        await at.say(session, "one")
        await at.ended(session)
        fork = await at.sessions.fork(TENANT, session.id, by="ann")
        for each, turn in ((fork, 2), (session, 2)):
            await at.sessions.go_on(TENANT, each.id, "ann")
            await at.ended(each, turn=turn)
        assert histories == [([], ["user"]), *[(["one", "ready"], ["note"])] * 2]


async def test_open_turns_go_on_after_a_restart_and_waiting_ones_wait(tmp_path: Path) -> None:
    do = Call(id="call-0", name="code_do")

    async def plan(turn: Turn, given: Given) -> Outcome:
        if turn.session.title == "waits":
            result: Outcome = await calling(do)(turn, given)
            return result
        return await forever(turn, given)

    async with centre(tmp_path, PlannedEngine(plan)) as at:
        waits, runs, rests = [await at.begin(title=title) for title in ("waits", "runs", "rests")]
        await at.say(waits, "go")
        await at.say(runs, "go")
        await at.ended(waits, "waiting")
    engine = PlannedEngine(done)
    async with centre(tmp_path, engine) as at:
        await at.ended(runs)
        assert engine.given == [Continue(cause="restart")]
        assert await at.turns(runs) == ["started message", "started restart", "ended done"]
        assert (await at.now(waits)).state is SessionState.WAITING
        assert await at.turns(rests) == []
        await decide(at, waits.id, "approve")
        await at.ended(waits)
        assert isinstance(engine.given[-1], Decisions)


async def test_a_decision_just_before_the_end_is_acted_on_after_a_restart(tmp_path: Path) -> None:
    do = Call(id="call-0", name="code_do")
    async with centre(tmp_path, PlannedEngine(calling(do))) as at:
        session = await at.begin()
        await at.say(session, "go")
        await at.ended(session, "waiting")
        at.calls.on_decided = lambda session_id: None
        approval = (await at.calls.pending(session.id))[0]
        decision = Decision(approval=approval.id, digest=approval.digest, action="approve")
        await at.calls.decide(TENANT, session.id, [decision], "ann")
    async with centre(tmp_path, PlannedEngine(calling(do))) as at:
        await at.ended(session)
        assert at.toolbox.ran == ["call-0"]


async def test_turns_that_wait_for_a_person_do_not_count(tmp_path: Path) -> None:
    consulted = calling(Call(id="call-0", name="code_do"), wait=True)

    async def plan(turn: Turn, given: Given) -> Outcome:
        return await (consulted if turn.session.title == "asks" else done)(turn, given)

    async with centre(tmp_path, PlannedEngine(plan), at_once=1) as at:
        asking = [await at.begin(title="asks") for _ in range(2)]
        for session in asking:
            await at.say(session, "go")
        for session in asking:
            await at.until(session, lambda event: event.type == "approval.required")
        other = await at.begin()
        await at.say(other, "hello")
        await at.ended(other)
        for session in asking:
            await decide(at, session.id, "approve")
            await at.ended(session)
        await at.say(other, "still there?")
        await at.ended(other, turn=2)


async def test_no_more_turns_at_once_than_may_be(tmp_path: Path) -> None:
    at_work, most = 0, 0
    full = asyncio.Event()

    async def plan(turn: Turn, given: Given) -> Outcome:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        if at_work == 2:
            full.set()
        await full.wait()
        at_work -= 1
        return Done()

    async with centre(tmp_path, PlannedEngine(plan), at_once=2) as at:
        sessions = [await at.begin() for _ in range(5)]
        for session in sessions:
            await at.say(session, "go")
        for session in sessions:
            await at.ended(session)
        assert most == 2


async def test_who_goes_away_does_not_leave_a_turn_that_nobody_works_at(tmp_path: Path) -> None:
    async with centre(tmp_path, PlannedEngine(done)) as at:
        for steps in range(5):
            session = await at.begin()
            sending = asyncio.create_task(at.say(session, "go"))
            kept = asyncio.create_task(at.until(session, lambda event: event.type == "message.received"))
            if steps:
                await asyncio.wait({kept})
            else:
                async with asyncio.timeout(5):
                    while not at.sessions._under_way:
                        await asyncio.sleep(0)
            for _ in range(steps):
                await asyncio.sleep(0)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            await at.ended(session)
            await kept
