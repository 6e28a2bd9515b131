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


async def works(turn: Turn, given: TurnInput) -> TurnOutcome:
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


async def approve_all(at: SessionHarness, session: Session) -> None:
    while (await at.now(session)).state is not SessionState.IDLE:
        for each in await at.calls.list_pending(session.id):
            decision = ApprovalDecision(approval=each.id, digest=each.digest, action="approve")
            try:
                await at.sessions.decide_approvals(TENANT, session.id, [decision], "ann")
            except Conflict:
                continue
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("writes", range(FIRST, LAST))
async def test_nothing_that_was_acknowledged_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    acknowledged: list[str] = []
    ran: list[str] = []
    async with open_session_harness(tmp_path, ScriptedEngine(works)) as at:
        session = await at.begin()
        left, submit = writes, at.store.submit

        def failing(work: Any, *, flush: bool = True) -> Future[Any]:
            nonlocal left
            left -= 1
            if left < 0:
                raise Unavailable("the disk has given up")
            return submit(work, flush=flush)

        monkeypatch.setattr(at.store, "submit", failing)
        try:
            async with asyncio.timeout(10):
                acknowledged.append((await at.say(session, "one", "a")).id)
                acknowledged.append((await at.say(session, "two", "b")).id)
                while left >= 0 and (await at.now(session)).state is not SessionState.IDLE:
                    for each in await at.calls.list_pending(session.id):
                        decision = ApprovalDecision(approval=each.id, digest=each.digest, action="approve")
                        await at.sessions.decide_approvals(TENANT, session.id, [decision], "ann")
                    await asyncio.sleep(0.001)
        except PaddockError:
            assert left < 0
        ran += at.toolbox.ran
        monkeypatch.setattr(at.store, "submit", submit)
    async with open_session_harness(tmp_path, ScriptedEngine(works)) as at, asyncio.timeout(20):
        await approve_all(at, session)
        acknowledged += [(await at.say(session, text, key)).id for text, key in (("one", "a"), ("two", "b"))]
        await approve_all(at, session)
        said = [message for message in await at.sessions.list_messages(TENANT, session.id) if message.role == "user"]
        assert len(said) == 2 and {message.id for message in said} == set(acknowledged)
        ran += at.toolbox.ran
        told = await at.told(session)
        check_turns(told)
        assert ran.count(DO.id) <= 1
        results = [event.data["call_id"] for event in told if event.type == "call.result"]
        assert sorted(results) == [LOOK.id, DO.id]


@pytest.mark.parametrize("seed", range(8))
async def test_everybody_at_once(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    made = 0
    heard: set[str] = set()

    async def restless(turn: Turn, given: TurnInput) -> TurnOutcome:
        nonlocal made
        for _ in range(chance.randrange(3)):
            heard.update(message.id for message in await turn.unread_messages(()))
            await asyncio.sleep(chance.choice((0, 0, 0.001)))
        if chance.random() < 0.2:
            raise Unavailable("no luck")
        made += 1
        try:
            await turn.call_tool(
                ToolCall(id=f"call-{made}", name="code_do", arguments={"n": made}), wait=chance.random() < 0.5
            )
        except ApprovalNeeded:
            return TurnPaused() if chance.random() < 0.9 else TurnDone()
        heard.update(message.id for message in await turn.unread_messages(()))
        return TurnDone()

    async with open_session_harness(tmp_path, ScriptedEngine(restless)) as at, asyncio.timeout(60):
        session = await at.begin()

        async def person(name: str) -> None:
            for number in range(12):
                await asyncio.sleep(chance.choice((0, 0.001, 0.003)))
                what = chance.random()
                try:
                    if what < 0.4:
                        await at.say(session, f"{name} {number}", f"{name}{number}")
                    elif what < 0.8:
                        for each in await at.calls.list_pending(session.id):
                            action = chance.choice(("approve", "reject"))
                            decision = ApprovalDecision.model_validate(
                                {"approval": each.id, "digest": each.digest, "action": action}
                            )
                            await at.sessions.decide_approvals(TENANT, session.id, [decision], name)
                    elif what < 0.9:
                        await at.sessions.cancel_turn(TENANT, session.id, name)
                    else:
                        await at.sessions.continue_turn(TENANT, session.id, name)
                except Conflict:
                    continue

        await asyncio.gather(*(person(name) for name in ("ann", "bob", "eve")))
        await approve_all(at, session)
        told = await at.told(session)
        check_turns(told)
        assert await at.calls.list_pending(session.id) == []
        messages = await at.sessions.list_messages(TENANT, session.id, limit=1000)
        assert [message.number for message in messages] == list(range(1, len(messages) + 1))
        ends = {event.data["turn"]: event.data["state"] for event in told if event.type == "turn.ended"}
        begins = {
            event.data["message"]["id"]
            for event in told
            if event.type == "message.received" and not event.data["waits"]
        }
        for message in messages:
            if message.role == "user" and ends[message.turn] == "done" and message.id not in begins:
                assert message.id in heard
        while at.sessions._turn_runner.is_running(session.id):
            await asyncio.sleep(0.005)
        assert len(await at.told(session)) == len(told), "somebody has worked on although the turn was over"
