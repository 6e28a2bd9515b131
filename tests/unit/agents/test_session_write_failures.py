"""Sessions when every single write fails, and under concurrent use."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from paddock.agents.engines.base import ApprovalNeeded, Turn, TurnDone, TurnInput, TurnOutcome, TurnPaused
from paddock.errors import Conflict, PaddockError, Unavailable
from paddock.model.events import EventRecord
from paddock.model.sessions import ApprovalDecision, Session, SessionState, ToolCall
from tests.unit.agents.session_harness import TENANT, ScriptedEngine, SessionHarness, open_session_harness

pytestmark = pytest.mark.anyio
LOOK, DO = ToolCall(id="call-1", name="code_look"), ToolCall(id="call-2", name="code_do")
FIRST, LAST = 0, 24
"""Writes after which the disk gives up: from before the first one until after the last."""


async def run_both_calls(turn: Turn, turn_input: TurnInput) -> TurnOutcome:
    known: set[str] = set()
    known.update(message.id for message in await turn.unread_messages(known))
    await turn.call_tool(LOOK, wait=False)
    try:
        await turn.call_tool(DO, wait=False)
    except ApprovalNeeded:
        return TurnPaused()
    await turn.unread_messages(known)
    return TurnDone()


def check_turns(events: Sequence[EventRecord]) -> None:
    """Check that turns start in order, and end once even if resumed often."""
    number, is_open = 0, False
    for event in events:
        if event.type == "turn.started":
            if event.data["cause"] == "message" or event.data["cause"] == "continue":
                assert not is_open and event.data["turn"] == number + 1
            else:
                assert is_open and event.data["turn"] == number
            number, is_open = event.data["turn"], True
        elif event.type == "turn.ended":
            assert is_open and event.data["turn"] == number
            is_open = event.data["state"] == "waiting"
    assert not is_open


async def approve_all(harness: SessionHarness, session: Session) -> None:
    while (await harness.load_session(session)).state is not SessionState.IDLE:
        for each in await harness.calls.list_pending_approvals(session.id):
            decision = ApprovalDecision(approval=each.id, digest=each.digest, action="approve")
            try:
                await harness.sessions.decide_approvals(TENANT, session.id, [decision], "ann")
            except Conflict:
                continue
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("writes", range(FIRST, LAST))
async def test_acknowledged_messages_survive_write_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    acknowledged: list[str] = []
    calls_run: list[str] = []
    async with open_session_harness(tmp_path, ScriptedEngine(run_both_calls)) as harness:
        session = await harness.create_session()
        writes_left, submit = writes, harness.store.submit

        def failing(work: Any, *, flush: bool = True) -> Future[Any]:
            nonlocal writes_left
            writes_left -= 1
            if writes_left < 0:
                raise Unavailable("the disk has given up")
            return submit(work, flush=flush)

        monkeypatch.setattr(harness.store, "submit", failing)
        try:
            async with asyncio.timeout(10):
                acknowledged.append((await harness.send_message(session, "one", "a")).id)
                acknowledged.append((await harness.send_message(session, "two", "b")).id)
                while writes_left >= 0 and (await harness.load_session(session)).state is not SessionState.IDLE:
                    for each in await harness.calls.list_pending_approvals(session.id):
                        decision = ApprovalDecision(approval=each.id, digest=each.digest, action="approve")
                        await harness.sessions.decide_approvals(TENANT, session.id, [decision], "ann")
                    await asyncio.sleep(0.001)
        except PaddockError:
            assert writes_left < 0
        calls_run += harness.toolbox.calls_run
        monkeypatch.setattr(harness.store, "submit", submit)
    async with open_session_harness(tmp_path, ScriptedEngine(run_both_calls)) as harness, asyncio.timeout(20):
        await approve_all(harness, session)
        acknowledged += [
            (await harness.send_message(session, text, key)).id for text, key in (("one", "a"), ("two", "b"))
        ]
        await approve_all(harness, session)
        user_messages = [
            message for message in await harness.sessions.list_messages(TENANT, session.id) if message.role == "user"
        ]
        assert len(user_messages) == 2 and {message.id for message in user_messages} == set(acknowledged)
        calls_run += harness.toolbox.calls_run
        events = await harness.list_events(session)
        check_turns(events)
        assert calls_run.count(DO.id) <= 1
        results = [event.data["call_id"] for event in events if event.type == "call.result"]
        assert sorted(results) == [LOOK.id, DO.id]


@pytest.mark.parametrize("seed", range(8))
async def test_concurrent_users_keep_session_consistent(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    call_count = 0
    read_ids: set[str] = set()

    async def act_at_random(turn: Turn, turn_input: TurnInput) -> TurnOutcome:
        nonlocal call_count
        for _ in range(rng.randrange(3)):
            read_ids.update(message.id for message in await turn.unread_messages(()))
            await asyncio.sleep(rng.choice((0, 0, 0.001)))
        if rng.random() < 0.2:
            raise Unavailable("no luck")
        call_count += 1
        try:
            await turn.call_tool(
                ToolCall(id=f"call-{call_count}", name="code_do", arguments={"n": call_count}), wait=rng.random() < 0.5
            )
        except ApprovalNeeded:
            return TurnPaused() if rng.random() < 0.9 else TurnDone()
        read_ids.update(message.id for message in await turn.unread_messages(()))
        return TurnDone()

    async with open_session_harness(tmp_path, ScriptedEngine(act_at_random)) as harness, asyncio.timeout(60):
        session = await harness.create_session()

        async def person(name: str) -> None:
            for number in range(12):
                await asyncio.sleep(rng.choice((0, 0.001, 0.003)))
                choice = rng.random()
                try:
                    if choice < 0.4:
                        await harness.send_message(session, f"{name} {number}", f"{name}{number}")
                    elif choice < 0.8:
                        for each in await harness.calls.list_pending_approvals(session.id):
                            action = rng.choice(("approve", "reject"))
                            decision = ApprovalDecision.model_validate(
                                {"approval": each.id, "digest": each.digest, "action": action}
                            )
                            await harness.sessions.decide_approvals(TENANT, session.id, [decision], name)
                    elif choice < 0.9:
                        await harness.sessions.cancel_turn(TENANT, session.id, name)
                    else:
                        await harness.sessions.continue_turn(TENANT, session.id, name)
                except Conflict:
                    continue

        await asyncio.gather(*(person(name) for name in ("ann", "bob", "eve")))
        await approve_all(harness, session)
        events = await harness.list_events(session)
        check_turns(events)
        assert await harness.calls.list_pending_approvals(session.id) == []
        messages = await harness.sessions.list_messages(TENANT, session.id, limit=1000)
        assert [message.number for message in messages] == list(range(1, len(messages) + 1))
        ends = {event.data["turn"]: event.data["state"] for event in events if event.type == "turn.ended"}
        begins = {
            event.data["message"]["id"]
            for event in events
            if event.type == "message.received" and not event.data["waits"]
        }
        for message in messages:
            if message.role == "user" and ends[message.turn] == "done" and message.id not in begins:
                assert message.id in read_ids
        while harness.sessions._turn_runner.is_running(session.id):
            await asyncio.sleep(0.005)
        assert len(await harness.list_events(session)) == len(events), "events after the end of the turn"
