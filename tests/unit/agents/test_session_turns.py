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
from paddock.agents.sessions.session_service import CreateSessionRequest
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


async def run_until_cancelled(turn: Turn, turn_input: TurnInput) -> TurnOutcome:
    await turn.unread_messages(())
    await asyncio.Event().wait()
    raise AssertionError


def run_calls_and_pause(*calls: ToolCall, wait: bool = False) -> Any:
    """Run calls like the LangGraph engine, and pause where approval is needed."""

    async def plan(turn: Turn, turn_input: TurnInput) -> TurnOutcome:
        await turn.unread_messages(())
        paused = False
        for call in calls:
            try:
                await turn.call_tool(call, wait=wait)
            except ApprovalNeeded:
                paused = True
        return TurnPaused() if paused else TurnDone()

    return plan


async def decide(harness: SessionHarness, session_id: str, *actions: str) -> None:
    pending = await harness.calls.list_pending_approvals(session_id)
    decisions = [
        ApprovalDecision(approval=each.id, digest=each.digest, action=action)
        for each, action in zip(pending, actions, strict=False)
    ]
    await harness.sessions.decide_approvals(TENANT, session_id, decisions, "ann")


async def test_message_starts_a_turn(tmp_path: Path) -> None:
    engine = ScriptedEngine(reply_done)
    async with open_session_harness(tmp_path, engine) as harness:
        session = await harness.create_session()
        message = await harness.send_message(session, "Hello\nthere")
        await harness.wait_for_turn_end(session)
        event_types = [event.type.value for event in await harness.list_events(session)]
        assert event_types == [
            "session.created",
            "message.received",
            "session.changed",
            "session.state",
            "turn.started",
            "turn.ended",
            "session.state",
        ]
        assert engine.inputs == [UserMessage(message=message)] and message.turn == message.number == 1
        session_after = await harness.load_session(session)
        assert (session_after.state, session_after.turn, session_after.title, session_after.error) == (
            SessionState.IDLE,
            1,
            "Hello",
            None,
        )
        second = await harness.send_message(session, "And now?")
        await harness.wait_for_turn_end(session, turn=2)
        assert (second.turn, second.number) == (2, 2) and (await harness.load_session(session)).title == "Hello"


async def test_message_during_turn_is_read_in_the_same_turn(tmp_path: Path) -> None:
    has_read, may_finish = asyncio.Event(), asyncio.Event()

    async def read_then_wait(turn: Turn, turn_input: TurnInput) -> TurnOutcome:
        await turn.unread_messages(())
        has_read.set()
        await may_finish.wait()
        return TurnDone()

    engine = ScriptedEngine(read_then_wait, reply_done)
    async with open_session_harness(tmp_path, engine) as harness:
        session = await harness.create_session()
        await harness.send_message(session, "one")
        await has_read.wait()
        second = await harness.send_message(session, "two")
        assert second.turn == 1
        waits = [
            event.data["waits"] for event in await harness.list_events(session) if event.type == "message.received"
        ]
        assert waits == [False, True]
        may_finish.set()
        await harness.wait_for_turn_end(session)
        assert engine.inputs[1:] == [ContinueTurn()]
        assert await harness.turn_events(session) == ["started message", "ended done"]


async def test_turn_of_engine_that_never_reads_ends(tmp_path: Path) -> None:
    async def never_read(turn: Turn, turn_input: TurnInput) -> TurnOutcome:
        if isinstance(turn_input, UserMessage):
            await write_reply(turn, "I am talking")
            await both_sent.wait()
        return TurnDone()

    both_sent = asyncio.Event()
    engine = ScriptedEngine(never_read)
    async with open_session_harness(tmp_path, engine) as harness:
        session = await harness.create_session()
        await harness.send_message(session, "one")
        await harness.send_message(session, "two")
        both_sent.set()
        await harness.wait_for_turn_end(session)
        assert [type(turn_input).__name__ for turn_input in engine.inputs] == ["UserMessage", "ContinueTurn"]


async def test_repeated_request_key_creates_one_message_and_session(tmp_path: Path) -> None:
    engine = ScriptedEngine(reply_done)
    async with open_session_harness(tmp_path, engine) as harness:
        first, second = await asyncio.gather(
            *(
                harness.sessions.create(TENANT, CreateSessionRequest(title=title), "ann", request_key="k")
                for title in ("a", "b")
            )
        )
        assert first == second
        other = await harness.sessions.create("other", CreateSessionRequest(), "bob", request_key="k")
        assert other.id != first.id
        messages = await asyncio.gather(*(harness.send_message(first, "hello", request_key="once") for _ in range(5)))
        await harness.wait_for_turn_end(first)
        assert len({message.id for message in messages}) == 1 and messages[0].number == 1
        assert (await harness.send_message(first, "hello", request_key="once")).number == 1
        assert await harness.turn_events(first) == ["started message", "ended done"] and len(engine.inputs) == 1


async def test_cancelling_ends_turn_calls_and_approvals(tmp_path: Path) -> None:
    look, do = ToolCall(id="call-1", name="code_look"), ToolCall(id="call-2", name="code_do")

    async def run_both(turn: Turn, turn_input: TurnInput) -> TurnOutcome:
        await turn.unread_messages(())
        await asyncio.gather(turn.call_tool(look), turn.call_tool(do))
        return TurnDone()

    async with open_session_harness(tmp_path, ScriptedEngine(run_both, reply_done)) as harness:
        harness.toolbox.run_gate = asyncio.Event()
        session = await harness.create_session()
        await harness.send_message(session, "go")
        await harness.wait_for_event(session, lambda event: event.type == "approval.required")
        await harness.wait_for_event(session, lambda event: event.type == "call.running")
        assert (await harness.load_session(session)).state is SessionState.WAITING
        cancelled, cancelled_again = await asyncio.gather(
            *(harness.sessions.cancel_turn(TENANT, session.id, "ann") for _ in range(2))
        )
        assert cancelled.state is cancelled_again.state is SessionState.IDLE
        assert await harness.turn_events(session) == ["started message", "ended cancelled"]
        events = await harness.list_events(session)
        assert {event.data["call_id"] for event in events if event.type == "call.result"} == {"call-1", "call-2"}
        assert await harness.calls.list_pending_approvals(session.id) == []
        await harness.send_message(session, "and now")
        await harness.wait_for_turn_end(session, turn=2)


async def test_failed_turn_has_reason_and_next_turn_works(tmp_path: Path) -> None:
    async def refused(turn: Turn, turn_input: TurnInput) -> TurnOutcome:
        with pytest.raises(ApprovalNeeded):
            await turn.call_tool(ToolCall(id="call-1", name="code_do"), wait=False)
        raise Unavailable("the model is gone")

    async def broken(turn: Turn, turn_input: TurnInput) -> TurnOutcome:
        raise ZeroDivisionError

    async with open_session_harness(tmp_path, ScriptedEngine(refused, broken, reply_done)) as harness:
        session = await harness.create_session()
        await harness.send_message(session, "one")
        await harness.wait_for_turn_end(session, "failed")
        errors = [event.data for event in await harness.list_events(session) if event.type == "turn.error"]
        assert errors == [{"code": "UNAVAILABLE", "message": "the model is gone", "fatal": True}]
        session_after = await harness.load_session(session)
        assert (session_after.state, session_after.error) == (SessionState.IDLE, "the model is gone")
        assert await harness.calls.list_pending_approvals(session.id) == []
        await harness.send_message(session, "two")
        failed = await harness.wait_for_turn_end(session, "failed", turn=2)
        assert "ZeroDivision" not in failed.data["reason"] and "log" in failed.data["reason"]
        await harness.send_message(session, "three")
        await harness.wait_for_turn_end(session, turn=3)
        assert (await harness.load_session(session)).error is None


async def test_paused_turn_continues_with_each_decision(tmp_path: Path) -> None:
    calls = [ToolCall(id=f"call-{number}", name="code_do", arguments={"n": number}) for number in range(2)]
    engine = ScriptedEngine(run_calls_and_pause(*calls))
    async with open_session_harness(tmp_path, engine) as harness:
        session = await harness.create_session()
        await harness.send_message(session, "go")
        await harness.wait_for_turn_end(session, "waiting")
        assert (await harness.load_session(session)).state is SessionState.WAITING
        late = await harness.send_message(session, "by the way")
        assert late.turn == 1 and len(engine.inputs) == 1
        await decide(harness, session.id, "approve")
        await harness.wait_for_event(session, lambda event: event.type == "call.result")
        await harness.wait_for_event(
            session, lambda event: event.type == "turn.started" and event.data["cause"] == "decisions"
        )
        assert harness.toolbox.calls_run == ["call-0"]
        async with asyncio.timeout(5):
            while (await harness.turn_events(session)).count("ended waiting") < 2:
                await asyncio.sleep(0.01)
        await decide(harness, session.id, "reject")
        await harness.wait_for_turn_end(session)
        assert harness.toolbox.calls_run == ["call-0"]
        decided_approvals = [
            each_input.approvals for each_input in engine.inputs if isinstance(each_input, ApprovalsDecided)
        ]
        assert [[each.state for each in approvals] for approvals in decided_approvals] == [
            [ApprovalState.APPROVED],
            [ApprovalState.REJECTED],
        ]
        assert await harness.turn_events(session) == [
            "started message",
            "ended waiting",
            "started decisions",
            "ended waiting",
            "started decisions",
            "ended done",
        ]


async def test_decision_while_engine_pauses_is_not_missed(tmp_path: Path) -> None:
    approval_needed, may_pause = asyncio.Event(), asyncio.Event()

    async def pause_slowly(turn: Turn, turn_input: TurnInput) -> TurnOutcome:
        await turn.unread_messages(())
        with pytest.raises(ApprovalNeeded):
            await turn.call_tool(ToolCall(id="call-0", name="code_do"), wait=False)
        approval_needed.set()
        await may_pause.wait()
        return TurnPaused()

    engine = ScriptedEngine(pause_slowly, run_calls_and_pause(ToolCall(id="call-0", name="code_do")))
    async with open_session_harness(tmp_path, engine) as harness:
        session = await harness.create_session()
        await harness.send_message(session, "go")
        await approval_needed.wait()
        await decide(harness, session.id, "approve")
        may_pause.set()
        await harness.wait_for_turn_end(session)
        assert harness.toolbox.calls_run == ["call-0"] and isinstance(engine.inputs[-1], ApprovalsDecided)
        assert await harness.turn_events(session) == ["started message", "ended done"]


@pytest.mark.parametrize("all_of_them", [True, False])
async def test_decision_while_turn_starts_waiting_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, all_of_them: bool
) -> None:
    calls = [ToolCall(id=f"call-{number}", name="code_do", arguments={"n": number}) for number in range(2)]
    async with open_session_harness(tmp_path, ScriptedEngine(run_calls_and_pause(*calls))) as harness:
        session = await harness.create_session()
        pending = harness.calls.list_pending_approvals
        list_calls = 0

        async def decide_meanwhile(session_id: str) -> Any:
            nonlocal list_calls
            list_calls += 1
            approvals = await pending(session_id)
            if "ended waiting" in await harness.turn_events(session) and list_calls < 10:
                list_calls = 10
                monkeypatch.setattr(harness.calls, "list_pending_approvals", pending)
                await decide(harness, session.id, *["approve"] * (2 if all_of_them else 1))
            return approvals

        monkeypatch.setattr(harness.calls, "list_pending_approvals", decide_meanwhile)
        await harness.send_message(session, "go")
        await harness.wait_for_event(session, lambda event: event.type == "call.result")
        if not all_of_them:
            async with asyncio.timeout(5):
                while (await harness.turn_events(session)).count("ended waiting") < 2:
                    await asyncio.sleep(0.01)
            await decide(harness, session.id, "approve")
        await harness.wait_for_turn_end(session)
        second_wait = [] if all_of_them else ["ended waiting", "started decisions"]
        assert await harness.turn_events(session) == [
            "started message",
            "ended waiting",
            "started decisions",
            *second_wait,
            "ended done",
        ]
        assert harness.toolbox.calls_run == ["call-0", "call-1"]


async def test_turn_continues_after_approval_expires(tmp_path: Path) -> None:
    async with open_session_harness(
        tmp_path, ScriptedEngine(run_calls_and_pause(ToolCall(id="call-0", name="code_do"))), approval_time=1
    ) as harness:
        session = await harness.create_session()
        await harness.send_message(session, "go")
        await harness.wait_for_turn_end(session)
        assert harness.toolbox.calls_run == [] and "started decisions" in await harness.turn_events(session)


async def test_continuing_starts_a_turn_with_a_note(tmp_path: Path) -> None:
    async def plan(turn: Turn, turn_input: TurnInput) -> TurnOutcome:
        return await (run_until_cancelled if isinstance(turn_input, UserMessage) else reply_done)(turn, turn_input)

    engine = ScriptedEngine(plan)
    async with open_session_harness(tmp_path, engine) as harness:
        session = await harness.create_session()
        with pytest.raises(Conflict, match="send a message"):
            await harness.sessions.continue_turn(TENANT, session.id, "ann")
        await harness.send_message(session, "one")
        with pytest.raises(Conflict, match="running"):
            await harness.sessions.continue_turn(TENANT, session.id, "ann")
        await harness.sessions.cancel_turn(TENANT, session.id, "ann")
        assert (await harness.sessions.continue_turn(TENANT, session.id, "ann")).state is SessionState.RUNNING
        await harness.wait_for_turn_end(session, turn=2)
        assert engine.inputs[-1] == ContinueTurn() and (await harness.load_session(session)).turn == 2
        assert await harness.turn_events(session) == [
            "started message",
            "ended cancelled",
            "started continue",
            "ended done",
        ]
        messages = await harness.sessions.list_messages(TENANT, session.id)
        assert [(message.role, message.turn) for message in messages] == [("user", 1), ("note", 2)]
        assert messages[1].text == "Go on from where you were."


async def test_fork_continues_with_its_history(tmp_path: Path) -> None:
    histories: list[tuple[list[str], list[str]]] = []

    async def plan(turn: Turn, turn_input: TurnInput) -> TurnOutcome:
        before, now = await turn.history(), await turn.unread_messages(())
        histories.append(([message.text for message in before], [message.role for message in now]))
        if isinstance(turn_input, UserMessage):
            await write_reply(turn, "ready")
        return TurnDone()

    async with open_session_harness(tmp_path, ScriptedEngine(plan)) as harness:
        session = await harness.create_session()
        await harness.send_message(session, "one")
        await harness.wait_for_turn_end(session)
        fork = await harness.sessions.fork(TENANT, session.id, by="ann")
        for each, turn in ((fork, 2), (session, 2)):
            await harness.sessions.continue_turn(TENANT, each.id, "ann")
            await harness.wait_for_turn_end(each, turn=turn)
        assert histories == [([], ["user"]), *[(["one", "ready"], ["note"])] * 2]


async def test_restart_resumes_open_turns_and_keeps_waiting_ones(tmp_path: Path) -> None:
    do = ToolCall(id="call-0", name="code_do")

    async def plan(turn: Turn, turn_input: TurnInput) -> TurnOutcome:
        if turn.session.title == "waits":
            result: TurnOutcome = await run_calls_and_pause(do)(turn, turn_input)
            return result
        return await run_until_cancelled(turn, turn_input)

    async with open_session_harness(tmp_path, ScriptedEngine(plan)) as harness:
        waiting, running, idle = [await harness.create_session(title=title) for title in ("waits", "runs", "rests")]
        await harness.send_message(waiting, "go")
        await harness.send_message(running, "go")
        await harness.wait_for_turn_end(waiting, "waiting")
    engine = ScriptedEngine(reply_done)
    async with open_session_harness(tmp_path, engine) as harness:
        await harness.wait_for_turn_end(running)
        assert engine.inputs == [ContinueTurn(cause="restart")]
        assert await harness.turn_events(running) == ["started message", "started restart", "ended done"]
        assert (await harness.load_session(waiting)).state is SessionState.WAITING
        assert await harness.turn_events(idle) == []
        await decide(harness, waiting.id, "approve")
        await harness.wait_for_turn_end(waiting)
        assert isinstance(engine.inputs[-1], ApprovalsDecided)


async def test_decision_just_before_stop_takes_effect_after_restart(tmp_path: Path) -> None:
    do = ToolCall(id="call-0", name="code_do")
    async with open_session_harness(tmp_path, ScriptedEngine(run_calls_and_pause(do))) as harness:
        session = await harness.create_session()
        await harness.send_message(session, "go")
        await harness.wait_for_turn_end(session, "waiting")
        harness.calls.on_decided = lambda session_id: None
        approval = (await harness.calls.list_pending_approvals(session.id))[0]
        decision = ApprovalDecision(approval=approval.id, digest=approval.digest, action="approve")
        await harness.calls.decide_approvals(TENANT, session.id, [decision], "ann")
    async with open_session_harness(tmp_path, ScriptedEngine(run_calls_and_pause(do))) as harness:
        await harness.wait_for_turn_end(session)
        assert harness.toolbox.calls_run == ["call-0"]


async def test_waiting_turns_hold_no_concurrency_slot(tmp_path: Path) -> None:
    run_with_approval = run_calls_and_pause(ToolCall(id="call-0", name="code_do"), wait=True)

    async def plan(turn: Turn, turn_input: TurnInput) -> TurnOutcome:
        return await (run_with_approval if turn.session.title == "asks" else reply_done)(turn, turn_input)

    async with open_session_harness(tmp_path, ScriptedEngine(plan), at_once=1) as harness:
        waiting_sessions = [await harness.create_session(title="asks") for _ in range(2)]
        for session in waiting_sessions:
            await harness.send_message(session, "go")
        for session in waiting_sessions:
            await harness.wait_for_event(session, lambda event: event.type == "approval.required")
        other = await harness.create_session()
        await harness.send_message(other, "hello")
        await harness.wait_for_turn_end(other)
        for session in waiting_sessions:
            await decide(harness, session.id, "approve")
            await harness.wait_for_turn_end(session)
        await harness.send_message(other, "still there?")
        await harness.wait_for_turn_end(other, turn=2)


async def test_concurrent_turns_are_limited(tmp_path: Path) -> None:
    running, max_running = 0, 0
    both_running = asyncio.Event()

    async def plan(turn: Turn, turn_input: TurnInput) -> TurnOutcome:
        nonlocal running, max_running
        running += 1
        max_running = max(max_running, running)
        if running == 2:
            both_running.set()
        await both_running.wait()
        running -= 1
        return TurnDone()

    async with open_session_harness(tmp_path, ScriptedEngine(plan), at_once=2) as harness:
        sessions = [await harness.create_session() for _ in range(5)]
        for session in sessions:
            await harness.send_message(session, "go")
        for session in sessions:
            await harness.wait_for_turn_end(session)
        assert max_running == 2


async def test_cancelled_sender_does_not_leave_turn_unprocessed(tmp_path: Path) -> None:
    async with open_session_harness(tmp_path, ScriptedEngine(reply_done)) as harness:
        for steps in range(5):
            session = await harness.create_session()
            send_task = asyncio.create_task(harness.send_message(session, "go"))
            received_task = asyncio.create_task(
                harness.wait_for_event(session, lambda event: event.type == "message.received")
            )
            if steps:
                await asyncio.wait({received_task})
            else:
                async with asyncio.timeout(5):
                    while not harness.sessions._tasks:
                        await asyncio.sleep(0)
            for _ in range(steps):
                await asyncio.sleep(0)
            send_task.cancel()
            await asyncio.gather(send_task, return_exceptions=True)
            await harness.wait_for_turn_end(session)
            await received_task
