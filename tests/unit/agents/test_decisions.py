"""Persons decide once, about what they were shown, in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from tests.unit.agents.desk import START, Desk, a_session, decision, shell

from paddock.agents.engines.base import Undecided
from paddock.errors import Conflict, InvalidInput, NotFound
from paddock.model.events import EventType
from paddock.model.session_events import TurnEnded
from paddock.model.sessions import (
    Action,
    Approval,
    ApprovalState,
    Call,
    Policy,
    Rule,
    SessionState,
)
from paddock.store.database import Store
from paddock.store.sessions import SessionStore
from paddock.store.tables import approvals

pytestmark = pytest.mark.anyio
DECIDED, RESULT, STATE = EventType.APPROVAL_DECIDED, EventType.CALL_RESULT, EventType.SESSION_STATE
QUESTION = Call(id="q1", name="ask_user", arguments={"question": "Which?", "choices": ["red", "blue"]})


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with await Store.open(tmp_path / "p.db") as opened:
        yield opened


@pytest.fixture
async def desk(store: Store) -> Desk:
    return await Desk.open(store)


async def ask(desk: Desk, call: Call | None = None) -> Approval:
    with pytest.raises(Undecided) as raised:
        await desk.perform(call or shell(), wait=False)
    return raised.value.approval


async def make_due(desk: Desk) -> None:
    """Let the time of all that is pending be over."""
    past = update(approvals).values(expires_at=datetime.now(UTC) - timedelta(seconds=1))
    await desk.store.write(lambda connection: connection.execute(past).rowcount)


async def test_an_approved_call_is_run(desk: Desk) -> None:
    approval = await ask(desk)
    (decided,) = await desk.decide(decision(approval, reason="fine"))
    assert (decided.state, decided.decided_by, decided.reason) == (ApprovalState.APPROVED, "ann", "fine")
    assert decided.decided_at is not None
    assert desk.tools.did == []
    assert (await desk.perform(shell(), wait=False)).text == "did c1"
    assert desk.heard == ["session-1"]
    (told,) = await desk.told(DECIDED)
    assert told == {"approval_id": approval.id, "call_id": "c1", "state": "approved", "by": "ann", "reason": "fine"}


async def test_an_edited_call_is_run_with_other_arguments(desk: Desk) -> None:
    await desk.decide(decision(await ask(desk), "edit", arguments={"command": "make -n"}))
    await desk.perform(shell())
    assert desk.tools.did == [shell("make -n")]
    (running,) = await desk.told(EventType.CALL_RUNNING)
    assert running["arguments"] == {"command": "make -n"}
    assert (await desk.told(DECIDED))[0]["arguments"] == {"command": "make -n"}


async def test_a_rejected_call_is_not_run_and_the_model_is_told_why(desk: Desk) -> None:
    await desk.decide(decision(await ask(desk), "reject", reason="use the Makefile"))
    result = await desk.perform(shell())
    assert result.refused and "use the Makefile" in result.text
    assert desk.tools.did == []
    assert (await desk.order())[-3:] == [DECIDED, RESULT, STATE]


async def test_an_answer_is_the_result(desk: Desk) -> None:
    await desk.decide(decision(await ask(desk), "answer", answer="it is built already"))
    result = await desk.perform(shell())
    assert (result.text, result.refused, result.failed) == ("it is built already", False, False)
    assert desk.tools.did == []


async def test_a_question_is_answered_by_a_person(desk: Desk) -> None:
    approval = await ask(desk, QUESTION)
    assert (approval.type, approval.question, approval.actions) == ("question", "Which?", ("answer", "reject"))
    assert [choice.label for choice in approval.choices] == ["red", "blue"]
    with pytest.raises(InvalidInput, match="answer or reject"):
        await desk.decide(decision(approval))
    await desk.decide(decision(approval, "answer", answer=approval.choices[1].id))
    assert (await desk.perform(QUESTION)).text == "blue"
    other = await ask(desk, QUESTION.model_copy(update={"id": "q2"}))
    await desk.decide(decision(other, "answer", answer="green"))
    third = await ask(desk, QUESTION.model_copy(update={"id": "q3"}))
    await desk.decide(decision(third, "reject"))
    assert (await desk.perform(QUESTION.model_copy(update={"id": "q2"}))).text == "green"
    assert (await desk.perform(QUESTION.model_copy(update={"id": "q3"}))).refused
    assert desk.tools.did == []


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"action": "edit"}, "needs `arguments`"),
        ({"action": "edit", "arguments": {"command": 3}}, "`command` must be text"),
        ({"action": "edit", "arguments": {"command": "x", "more": 1}}, "`more` is not known"),
        ({"action": "approve", "arguments": {"command": "x"}}, "belong to `edit`"),
        ({"action": "approve", "answer": "x"}, "belongs to `answer`"),
        ({"action": "answer"}, "text of the answer"),
        ({"action": "answer", "answer": "  "}, "text of the answer"),
        ({"action": "reject", "always": "tool"}, "belongs to `approve`"),
    ],
)
async def test_what_makes_no_sense_decides_nothing(desk: Desk, given: dict[str, Any], says: str) -> None:
    approval = await ask(desk)
    with pytest.raises(InvalidInput, match=says):
        await desk.decide(decision(approval, **given))
    assert await desk.only() == approval
    assert desk.heard == []
    assert await desk.told(DECIDED) == []


async def test_nobody_edits_a_call_into_what_is_denied(store: Store) -> None:
    policy = Policy(rules=(Rule(arguments={"command": "rm *"}, action=Action.DENY),))
    desk = await Desk.open(store, policy=policy)
    with pytest.raises(InvalidInput, match="denies"):
        await desk.decide(decision(await ask(desk), "edit", arguments={"command": "rm x"}))


async def test_nobody_approves_what_they_have_not_seen(desk: Desk) -> None:
    approval = await ask(desk)
    with pytest.raises(Conflict, match="something else"):
        await desk.decide(decision(approval.model_copy(update={"digest": shell("other").digest})))
    assert await desk.only() == approval


async def test_a_decision_counts_once_and_the_second_hears_who_was_first(desk: Desk) -> None:
    approval = await ask(desk)
    both = await asyncio.gather(
        desk.decide(decision(approval), by="ann"),
        desk.decide(decision(approval, "reject"), by="bob"),
        return_exceptions=True,
    )
    assert not isinstance(both[0], BaseException)
    assert isinstance(both[1], Conflict) and "approved already by ann at 20" in str(both[1])
    with pytest.raises(Conflict, match="counts once"):
        await desk.decide(decision(approval), by="ann")
    assert len(await desk.told(DECIDED)) == 1


async def test_several_decisions_are_all_or_nothing(desk: Desk) -> None:
    one, two = await ask(desk), await ask(desk, shell(call_id="c2"))
    unknown = decision(two.model_copy(update={"id": "approval-x"}))
    with pytest.raises(NotFound, match="approval-x"):
        await desk.decide(decision(one), unknown)
    with pytest.raises(InvalidInput, match="2 decisions"):
        await desk.decide(decision(one), decision(one, "reject"))
    with pytest.raises(InvalidInput, match="1 to 100"):
        await desk.decide()
    assert list(await desk.pending()) == [one, two]
    await desk.decide(decision(one), decision(two, "reject"))
    assert await desk.pending() == []
    assert desk.heard == ["session-1"]


async def test_other_tenants_and_sessions_see_nothing(desk: Desk) -> None:
    approval = await ask(desk)
    await desk.keep(a_session("session-2"))
    for tenant, session in (("u", "session-1"), ("t", "session-2"), ("t", "nobody")):
        with pytest.raises(NotFound):
            await desk.calls.decide(tenant, session, [decision(approval)], "eve")
    assert await desk.only() == approval
    assert await desk.calls.list("u") == []


async def test_the_session_waits_until_the_last_is_decided(desk: Desk) -> None:
    one, two = await ask(desk), await ask(desk, shell(call_id="c2"))
    await desk.decide(decision(one))
    assert (await desk.now()).state is SessionState.WAITING
    await desk.decide(decision(two))
    assert (await desk.now()).state is SessionState.RUNNING
    assert [each["state"] for each in await desk.told(STATE)] == ["waiting", "running"]


@pytest.mark.parametrize(
    ("end", "state"), [("waiting", SessionState.RUNNING), ("failed", SessionState.IDLE), ("done", SessionState.IDLE)]
)
async def test_after_the_last_decision_the_state_is_that_of_the_turn(desk: Desk, end: Any, state: SessionState) -> None:
    approval = await ask(desk)
    await desk.tell(TurnEnded(turn=1, state=end))
    await desk.decide(decision(approval))
    assert (await desk.now()).state is state


async def test_always_this_call(desk: Desk) -> None:
    await desk.decide(decision(await ask(desk, shell("rm *.o")), always="call"))
    assert not (await desk.perform(shell("rm *.o", "c2"), wait=False)).refused
    await ask(desk, shell("rm x.o", "c3"))
    (changed,) = await desk.told(EventType.SESSION_CHANGED)
    assert changed["by"] == "ann"
    (rule,) = (await desk.now()).policy.rules
    assert Policy.model_validate(changed["policy"]).rules == (rule,)
    assert (rule.tool, dict(rule.arguments), rule.exact) == ("linux_run_shell_command", {"command": "rm [*].o"}, True)


async def test_always_this_tool(desk: Desk) -> None:
    one, two = await ask(desk), await ask(desk, shell("ls", "c2"))
    await desk.decide(decision(one, always="tool"), decision(two, always="call"))
    assert not (await desk.perform(shell("anything", "c3"), wait=False)).refused
    assert len((await desk.now()).policy.rules) == 2
    write = Call(id="w", name="linux_write_file", arguments={"path": "/a", "content": "x"})
    await ask(desk, write)


async def test_always_decides_what_waits_too(desk: Desk) -> None:
    one, two = await ask(desk), await ask(desk, shell("ls", "c2"))
    write = await ask(desk, Call(id="w", name="linux_write_file", arguments={"path": "/a", "content": "x"}))
    question = await ask(desk, QUESTION)
    decided = await desk.decide(decision(one, always="tool"))
    assert [(each.id, each.state, each.decided_by, each.always) for each in decided] == [
        (one.id, ApprovalState.APPROVED, "ann", "tool"),
        (two.id, ApprovalState.APPROVED, "ann", None),
    ]
    assert {each.id for each in await desk.pending()} == {write.id, question.id}
    assert [each["approval_id"] for each in await desk.told(DECIDED)] == [one.id, two.id]
    assert not (await desk.perform(shell("ls", "c2"), wait=False)).refused


async def test_always_this_call_decides_the_same_that_waits(desk: Desk) -> None:
    one, same = await ask(desk), await ask(desk, shell(call_id="c2"))
    other = await ask(desk, shell("make clean", "c3"))
    decided = await desk.decide(decision(one, always="call"))
    assert [each.id for each in decided] == [one.id, same.id]
    assert await desk.only() == other


async def test_always_does_not_approve_what_is_denied_by_now(desk: Desk) -> None:
    one, two = await ask(desk), await ask(desk, shell("rm -rf x", "c2"))
    denying = Policy(rules=(Rule(tool="*", arguments={"command": "rm *"}, action=Action.DENY),))
    await desk.store.write(lambda connection: SessionStore.alter(connection, "session-1", {"policy": denying}, START))
    await desk.decide(decision(one, always="tool"))
    assert await desk.only() == two


async def test_always_with_too_much_in_it_decides_nothing(desk: Desk) -> None:
    approval = await ask(desk, shell("x" * 2000))
    with pytest.raises(InvalidInput, match="without `always`"):
        await desk.decide(decision(approval, always="call"))
    assert await desk.only() == approval
    assert (await desk.now()).policy == Policy()


async def test_what_is_withdrawn_cannot_be_decided(desk: Desk) -> None:
    waiting = asyncio.create_task(desk.perform(shell()))
    (approval,) = await desk.asked()
    await desk.calls.withdraw("session-1", "cancelled by ann")
    result = await waiting
    assert result.refused and "cancelled by ann" in result.text
    with pytest.raises(Conflict, match="withdrawn"):
        await desk.decide(decision(approval))
    await desk.calls.withdraw("session-1", "again")
    (told,) = await desk.told(DECIDED)
    assert (told["state"], told["reason"]) == ("withdrawn", "cancelled by ann")
    assert desk.heard == []


async def test_who_decides_need_not_stay(desk: Desk) -> None:
    approval = await ask(desk)
    leaving = asyncio.create_task(desk.decide(decision(approval)))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.wait({leaving})
    async with asyncio.timeout(10):
        while not desk.heard:
            await asyncio.sleep(0)
    assert (await desk.perform(shell(), wait=False)).text == "did c1"


# Time


async def test_approvals_have_the_time_that_is_configured(store: Store) -> None:
    desk = await Desk.open(store, approval_time=60)
    approval = await ask(desk)
    assert approval.expires_at == approval.created_at + timedelta(seconds=60)
    forever = await desk.again(approval_time=None)
    assert (await ask(forever, shell(call_id="c2"))).expires_at is None


async def test_what_is_over_time_is_refused(desk: Desk) -> None:
    approval = await ask(desk)
    assert await desk.calls.expire() == []
    await make_due(desk)
    with pytest.raises(Conflict, match="expired"):
        await desk.decide(decision(approval))
    assert await desk.calls.expire() == ["session-1"]
    assert await desk.calls.expire() == []
    with pytest.raises(Conflict, match="expired"):
        await desk.decide(decision(approval))
    result = await desk.perform(shell())
    assert result.refused and "in time" in result.text
    assert desk.tools.did == []
    assert desk.heard == ["session-1"]
    assert (await desk.order())[-3:] == [EventType.APPROVAL_EXPIRED, RESULT, STATE]
    assert (await desk.now()).state is SessionState.RUNNING


async def test_it_expires_by_itself_and_wakes_who_waits(store: Store) -> None:
    desk = await Desk.open(store, approval_time=1)
    await desk.calls.open()
    try:
        async with asyncio.timeout(20):
            assert (await desk.perform(shell())).refused
        assert desk.heard == []
    finally:
        await desk.calls.close()


async def test_what_expired_while_no_server_ran_expires_at_once(desk: Desk) -> None:
    await ask(desk)
    await make_due(desk)
    anew = await desk.again()
    heard = asyncio.Event()
    anew.calls.on_decided = lambda session_id: heard.set()
    await anew.calls.open()
    try:
        async with asyncio.timeout(20):
            await heard.wait()
        assert await anew.pending() == []
    finally:
        await anew.calls.close()


# The list


async def test_the_list_has_all_that_was_asked_newest_first(desk: Desk) -> None:
    made = [await ask(desk, shell(call_id=f"c{number}")) for number in range(5)]
    await desk.decide(decision(made[0]), decision(made[1], "reject", reason="no"))
    found = await desk.calls.list("t")
    assert [approval.id for approval in found] == [approval.id for approval in reversed(made)]
    assert [each.id for each in await desk.calls.list("t", limit=2)] == [made[4].id, made[3].id]
    assert [each.id for each in await desk.calls.list("t", limit=2, before=made[3].id)] == [made[2].id, made[1].id]
    (rejected,) = await desk.calls.list("t", state=ApprovalState.REJECTED)
    assert (rejected.id, rejected.reason, rejected.decided_by) == (made[1].id, "no", "ann")
    assert await desk.calls.list("t", session="other") == []
    with pytest.raises(InvalidInput, match="go on from"):
        await desk.calls.list("t", before="nothing")
    with pytest.raises(InvalidInput, match="go on from"):
        await desk.calls.list("u", before=made[0].id)
