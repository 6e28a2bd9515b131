"""Turns of sessions: stored state and events, in all circumstances."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from paddock.agents.engines.base import (
    ApprovalNeeded,
    ApprovalsDecided,
    ContinueTurn,
    Turn,
    TurnDone,
    TurnInput,
    TurnOutcome,
    TurnPaused,
    UserMessage,
)
from paddock.agents.sessions.service import CreateSessionRequest
from paddock.errors import Conflict, Unavailable
from paddock.model.sessions import (
    ApprovalDecision,
    ApprovalState,
    SessionState,
    ToolCall,
)
from tests.unit.agents.session_harness import (
    TENANT,
    ScriptedEngine,
    SessionHarness,
    open_session_harness,
    reply_done,
    write_reply,
)

pytestmark = pytest.mark.anyio


async def forever(turn: Turn, given: TurnInput) -> TurnOutcome:
    await turn.unread_messages(())
    await asyncio.Event().wait()
    raise AssertionError


def calling(*calls: ToolCall, wait: bool = False) -> Any:
    """Run calls like the LangGraph engine, and pause where approval is needed."""

    async def plan(turn: Turn, given: TurnInput) -> TurnOutcome:
        await turn.unread_messages(())
        paused = False
        for call in calls:
            try:
                await turn.call_tool(call, wait=wait)
            except ApprovalNeeded:
                paused = True
        return TurnPaused() if paused else TurnDone()

    return plan


async def decide(at: SessionHarness, session_id: str, *actions: str) -> None:
    pending = await at.calls.list_pending(session_id)
    decisions = [
        ApprovalDecision(approval=each.id, digest=each.digest, action=action)
        for each, action in zip(pending, actions, strict=False)
    ]
    await at.sessions.decide_approvals(TENANT, session_id, decisions, "ann")


async def test_a_message_begins_a_turn_that_ends(tmp_path: Path) -> None:
    engine = ScriptedEngine(reply_done)
    async with open_session_harness(tmp_path, engine) as at:
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

    async def late(turn: Turn, given: TurnInput) -> TurnOutcome:
        await turn.unread_messages(())
        looked.set()
        await go_on.wait()
        return TurnDone()

    engine = ScriptedEngine(late, reply_done)
    async with open_session_harness(tmp_path, engine) as at:
        session = await at.begin()
        await at.say(session, "one")
        await looked.wait()
        second = await at.say(session, "two")
        assert second.turn == 1
        waits = [event.data["waits"] for event in await at.told(session) if event.type == "message.received"]
        assert waits == [False, True]
        go_on.set()
        await at.ended(session)
        assert engine.given[1:] == [ContinueTurn()]
        assert await at.turns(session) == ["started message", "ended done"]


async def test_an_engine_that_never_reads_does_not_run_for_ever(tmp_path: Path) -> None:
    async def deaf(turn: Turn, given: TurnInput) -> TurnOutcome:
        if isinstance(given, UserMessage):
            await write_reply(turn, "I am talking")
            await started.wait()
        return TurnDone()

    started = asyncio.Event()
    engine = ScriptedEngine(deaf)
    async with open_session_harness(tmp_path, engine) as at:
        session = await at.begin()
        await at.say(session, "one")
        await at.say(session, "two")
        started.set()
        await at.ended(session)
        assert [type(given).__name__ for given in engine.given] == ["UserMessage", "ContinueTurn"]


async def test_the_same_request_is_one_message_and_one_session(tmp_path: Path) -> None:
    engine = ScriptedEngine(reply_done)
    async with open_session_harness(tmp_path, engine) as at:
        first, second = await asyncio.gather(
            *(
                at.sessions.create(TENANT, CreateSessionRequest(title=title), "ann", request_key="k")
                for title in ("a", "b")
            )
        )
        assert first == second
        other = await at.sessions.create("other", CreateSessionRequest(), "bob", request_key="k")
        assert other.id != first.id
        messages = await asyncio.gather(*(at.say(first, "hello", request_key="once") for _ in range(5)))
        await at.ended(first)
        assert len({message.id for message in messages}) == 1 and messages[0].number == 1
        assert (await at.say(first, "hello", request_key="once")).number == 1
        assert await at.turns(first) == ["started message", "ended done"] and len(engine.given) == 1


async def test_cancelling_ends_the_turn_and_what_it_waits_for(tmp_path: Path) -> None:
    look, do = ToolCall(id="call-1", name="code_look"), ToolCall(id="call-2", name="code_do")

    async def both(turn: Turn, given: TurnInput) -> TurnOutcome:
        await turn.unread_messages(())
        await asyncio.gather(turn.call_tool(look), turn.call_tool(do))
        return TurnDone()

    async with open_session_harness(tmp_path, ScriptedEngine(both, reply_done)) as at:
        at.toolbox.hold = asyncio.Event()
        session = await at.begin()
        await at.say(session, "go")
        await at.until(session, lambda event: event.type == "approval.required")
        await at.until(session, lambda event: event.type == "call.running")
        assert (await at.now(session)).state is SessionState.WAITING
        cancelled, again = await asyncio.gather(*(at.sessions.cancel_turn(TENANT, session.id, "ann") for _ in range(2)))
        assert cancelled.state is again.state is SessionState.IDLE
        assert await at.turns(session) == ["started message", "ended cancelled"]
        told = await at.told(session)
        assert {event.data["call_id"] for event in told if event.type == "call.result"} == {"call-1", "call-2"}
        assert await at.calls.list_pending(session.id) == []
        await at.say(session, "and now")
        await at.ended(session, turn=2)


async def test_a_failed_turn_says_why_and_the_next_one_is_fine(tmp_path: Path) -> None:
    async def refused(turn: Turn, given: TurnInput) -> TurnOutcome:
        with pytest.raises(ApprovalNeeded):
            await turn.call_tool(ToolCall(id="call-1", name="code_do"), wait=False)
        raise Unavailable("the model is gone")

    async def broken(turn: Turn, given: TurnInput) -> TurnOutcome:
        raise ZeroDivisionError

    async with open_session_harness(tmp_path, ScriptedEngine(refused, broken, reply_done)) as at:
        session = await at.begin()
        await at.say(session, "one")
        await at.ended(session, "failed")
        errors = [event.data for event in await at.told(session) if event.type == "turn.error"]
        assert errors == [{"code": "UNAVAILABLE", "message": "the model is gone", "fatal": True}]
        now = await at.now(session)
        assert (now.state, now.error) == (SessionState.IDLE, "the model is gone")
        assert await at.calls.list_pending(session.id) == []
        await at.say(session, "two")
        failed = await at.ended(session, "failed", turn=2)
        assert "ZeroDivision" not in failed.data["reason"] and "log" in failed.data["reason"]
        await at.say(session, "three")
        await at.ended(session, turn=3)
        assert (await at.now(session)).error is None


async def test_a_paused_turn_goes_on_with_each_decision(tmp_path: Path) -> None:
    calls = [ToolCall(id=f"call-{number}", name="code_do", arguments={"n": number}) for number in range(2)]
    engine = ScriptedEngine(calling(*calls))
    async with open_session_harness(tmp_path, engine) as at:
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
        given = [one.approvals for one in engine.given if isinstance(one, ApprovalsDecided)]
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

    async def slowly(turn: Turn, given: TurnInput) -> TurnOutcome:
        await turn.unread_messages(())
        with pytest.raises(ApprovalNeeded):
            await turn.call_tool(ToolCall(id="call-0", name="code_do"), wait=False)
        asked.set()
        await go_on.wait()
        return TurnPaused()

    engine = ScriptedEngine(slowly, calling(ToolCall(id="call-0", name="code_do")))
    async with open_session_harness(tmp_path, engine) as at:
        session = await at.begin()
        await at.say(session, "go")
        await asked.wait()
        await decide(at, session.id, "approve")
        go_on.set()
        await at.ended(session)
        assert at.toolbox.ran == ["call-0"] and isinstance(engine.given[-1], ApprovalsDecided)
        assert await at.turns(session) == ["started message", "ended done"]


@pytest.mark.parametrize("all_of_them", [True, False])
async def test_a_decision_that_comes_when_the_turn_is_told_to_wait_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, all_of_them: bool
) -> None:
    calls = [ToolCall(id=f"call-{number}", name="code_do", arguments={"n": number}) for number in range(2)]
    async with open_session_harness(tmp_path, ScriptedEngine(calling(*calls))) as at:
        session = await at.begin()
        pending = at.calls.list_pending
        looks = 0

        async def meanwhile(session_id: str) -> Any:
            nonlocal looks
            looks += 1
            found = await pending(session_id)
            if "ended waiting" in await at.turns(session) and looks < 10:
                looks = 10
                monkeypatch.setattr(at.calls, "list_pending", pending)
                await decide(at, session.id, *["approve"] * (2 if all_of_them else 1))
            return found

        monkeypatch.setattr(at.calls, "list_pending", meanwhile)
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
    async with open_session_harness(
        tmp_path, ScriptedEngine(calling(ToolCall(id="call-0", name="code_do"))), approval_time=1
    ) as at:
        session = await at.begin()
        await at.say(session, "go")
        await at.ended(session)
        assert at.toolbox.ran == [] and "started decisions" in await at.turns(session)


async def test_going_on_is_a_turn_of_its_own(tmp_path: Path) -> None:
    async def plan(turn: Turn, given: TurnInput) -> TurnOutcome:
        return await (forever if isinstance(given, UserMessage) else reply_done)(turn, given)

    engine = ScriptedEngine(plan)
    async with open_session_harness(tmp_path, engine) as at:
        session = await at.begin()
        with pytest.raises(Conflict, match="send a message"):
            await at.sessions.continue_turn(TENANT, session.id, "ann")
        await at.say(session, "one")
        with pytest.raises(Conflict, match="running"):
            await at.sessions.continue_turn(TENANT, session.id, "ann")
        await at.sessions.cancel_turn(TENANT, session.id, "ann")
        assert (await at.sessions.continue_turn(TENANT, session.id, "ann")).state is SessionState.RUNNING
        await at.ended(session, turn=2)
        assert engine.given[-1] == ContinueTurn() and (await at.now(session)).turn == 2
        assert await at.turns(session) == ["started message", "ended cancelled", "started continue", "ended done"]
        said = await at.sessions.list_messages(TENANT, session.id)
        assert [(message.role, message.turn) for message in said] == [("user", 1), ("note", 2)]
        assert said[1].text == "Go on from where you were."


async def test_a_fork_goes_on_with_all_that_was_said(tmp_path: Path) -> None:
    histories: list[tuple[list[str], list[str]]] = []

    async def plan(turn: Turn, given: TurnInput) -> TurnOutcome:
        before, now = await turn.history(), await turn.unread_messages(())
        histories.append(([message.text for message in before], [message.role for message in now]))
        if isinstance(given, UserMessage):
            await write_reply(turn, "ready")
        return TurnDone()

    async with open_session_harness(tmp_path, ScriptedEngine(plan)) as at:
        session = await at.begin()
        await at.say(session, "one")
        await at.ended(session)
        fork = await at.sessions.fork(TENANT, session.id, by="ann")
        for each, turn in ((fork, 2), (session, 2)):
            await at.sessions.continue_turn(TENANT, each.id, "ann")
            await at.ended(each, turn=turn)
        assert histories == [([], ["user"]), *[(["one", "ready"], ["note"])] * 2]


async def test_open_turns_go_on_after_a_restart_and_waiting_ones_wait(tmp_path: Path) -> None:
    do = ToolCall(id="call-0", name="code_do")

    async def plan(turn: Turn, given: TurnInput) -> TurnOutcome:
        if turn.session.title == "waits":
            result: TurnOutcome = await calling(do)(turn, given)
            return result
        return await forever(turn, given)

    async with open_session_harness(tmp_path, ScriptedEngine(plan)) as at:
        waits, runs, rests = [await at.begin(title=title) for title in ("waits", "runs", "rests")]
        await at.say(waits, "go")
        await at.say(runs, "go")
        await at.ended(waits, "waiting")
    engine = ScriptedEngine(reply_done)
    async with open_session_harness(tmp_path, engine) as at:
        await at.ended(runs)
        assert engine.given == [ContinueTurn(cause="restart")]
        assert await at.turns(runs) == ["started message", "started restart", "ended done"]
        assert (await at.now(waits)).state is SessionState.WAITING
        assert await at.turns(rests) == []
        await decide(at, waits.id, "approve")
        await at.ended(waits)
        assert isinstance(engine.given[-1], ApprovalsDecided)


async def test_a_decision_just_before_the_end_is_acted_on_after_a_restart(tmp_path: Path) -> None:
    do = ToolCall(id="call-0", name="code_do")
    async with open_session_harness(tmp_path, ScriptedEngine(calling(do))) as at:
        session = await at.begin()
        await at.say(session, "go")
        await at.ended(session, "waiting")
        at.calls.on_decided = lambda session_id: None
        approval = (await at.calls.list_pending(session.id))[0]
        decision = ApprovalDecision(approval=approval.id, digest=approval.digest, action="approve")
        await at.calls.decide(TENANT, session.id, [decision], "ann")
    async with open_session_harness(tmp_path, ScriptedEngine(calling(do))) as at:
        await at.ended(session)
        assert at.toolbox.ran == ["call-0"]


async def test_turns_that_wait_for_a_person_do_not_count(tmp_path: Path) -> None:
    consulted = calling(ToolCall(id="call-0", name="code_do"), wait=True)

    async def plan(turn: Turn, given: TurnInput) -> TurnOutcome:
        return await (consulted if turn.session.title == "asks" else reply_done)(turn, given)

    async with open_session_harness(tmp_path, ScriptedEngine(plan), at_once=1) as at:
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

    async def plan(turn: Turn, given: TurnInput) -> TurnOutcome:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        if at_work == 2:
            full.set()
        await full.wait()
        at_work -= 1
        return TurnDone()

    async with open_session_harness(tmp_path, ScriptedEngine(plan), at_once=2) as at:
        sessions = [await at.begin() for _ in range(5)]
        for session in sessions:
            await at.say(session, "go")
        for session in sessions:
            await at.ended(session)
        assert most == 2


async def test_who_goes_away_does_not_leave_a_turn_that_nobody_works_at(tmp_path: Path) -> None:
    async with open_session_harness(tmp_path, ScriptedEngine(reply_done)) as at:
        for steps in range(5):
            session = await at.begin()
            sending = asyncio.create_task(at.say(session, "go"))
            kept = asyncio.create_task(at.until(session, lambda event: event.type == "message.received"))
            if steps:
                await asyncio.wait({kept})
            else:
                async with asyncio.timeout(5):
                    while not at.sessions._tasks:
                        await asyncio.sleep(0)
            for _ in range(steps):
                await asyncio.sleep(0)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            await at.ended(session)
            await kept
