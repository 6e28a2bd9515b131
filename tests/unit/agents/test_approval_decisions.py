"""Approvals are decided once, in time, and as they were shown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from paddock.agents.engines.base import ApprovalNeeded
from paddock.errors import Conflict, InvalidInput, NotFound
from paddock.model.events import EventType
from paddock.model.session_events import TurnEnded
from paddock.model.sessions import (
    Approval,
    ApprovalState,
    Policy,
    PolicyAction,
    PolicyRule,
    SessionState,
    ToolCall,
)
from paddock.store.chat_sessions.session_store import SessionStore
from paddock.store.database import Store
from paddock.store.tables import approvals
from tests.unit.agents.call_harness import START, CallHarness, make_decision, make_session, shell_call

pytestmark = pytest.mark.anyio
DECIDED, RESULT, STATE = EventType.APPROVAL_DECIDED, EventType.CALL_RESULT, EventType.SESSION_STATE
QUESTION = ToolCall(id="q1", name="ask_user", arguments={"question": "Which?", "choices": ["red", "blue"]})


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with await Store.open(tmp_path / "p.db") as opened:
        yield opened


@pytest.fixture
async def harness(store: Store) -> CallHarness:
    return await CallHarness.open(store)


async def ask(harness: CallHarness, call: ToolCall | None = None) -> Approval:
    with pytest.raises(ApprovalNeeded) as raised:
        await harness.run_call(call or shell_call(), wait=False)
    return raised.value.approval


async def make_due(harness: CallHarness) -> None:
    """Let all pending approvals expire."""
    past = update(approvals).values(expires_at=datetime.now(UTC) - timedelta(seconds=1))
    await harness.store.write(lambda connection: connection.execute(past).rowcount)


async def test_approved_call_is_run(harness: CallHarness) -> None:
    approval = await ask(harness)
    (decided,) = await harness.decide(make_decision(approval, reason="fine"))
    assert (decided.state, decided.decided_by, decided.reason) == (ApprovalState.APPROVED, "ann", "fine")
    assert decided.decided_at is not None
    assert harness.tools.calls_run == []
    assert (await harness.run_call(shell_call(), wait=False)).text == "did c1"
    assert harness.decided_sessions == ["session-1"]
    (event,) = await harness.events_of(DECIDED)
    assert event == {"approval_id": approval.id, "call_id": "c1", "state": "approved", "by": "ann", "reason": "fine"}


async def test_edited_call_runs_with_edited_arguments(harness: CallHarness) -> None:
    await harness.decide(make_decision(await ask(harness), "edit", arguments={"command": "make -n"}))
    await harness.run_call(shell_call())
    assert harness.tools.calls_run == [shell_call("make -n")]
    (running,) = await harness.events_of(EventType.CALL_RUNNING)
    assert running["arguments"] == {"command": "make -n"}
    assert (await harness.events_of(DECIDED))[0]["arguments"] == {"command": "make -n"}


async def test_rejected_call_is_not_run_and_has_reason(harness: CallHarness) -> None:
    await harness.decide(make_decision(await ask(harness), "reject", reason="use the Makefile"))
    result = await harness.run_call(shell_call())
    assert result.refused and "use the Makefile" in result.text
    assert harness.tools.calls_run == []
    assert (await harness.event_types())[-3:] == [DECIDED, RESULT, STATE]


async def test_answer_is_the_result(harness: CallHarness) -> None:
    await harness.decide(make_decision(await ask(harness), "answer", answer="it is built already"))
    result = await harness.run_call(shell_call())
    assert (result.text, result.refused, result.failed) == ("it is built already", False, False)
    assert harness.tools.calls_run == []


async def test_question_is_answered_or_rejected(harness: CallHarness) -> None:
    approval = await ask(harness, QUESTION)
    assert (approval.type, approval.question, approval.actions) == ("question", "Which?", ("answer", "reject"))
    assert [choice.label for choice in approval.choices] == ["red", "blue"]
    with pytest.raises(InvalidInput, match="answer or reject"):
        await harness.decide(make_decision(approval))
    await harness.decide(make_decision(approval, "answer", answer=approval.choices[1].id))
    assert (await harness.run_call(QUESTION)).text == "blue"
    other = await ask(harness, QUESTION.model_copy(update={"id": "q2"}))
    await harness.decide(make_decision(other, "answer", answer="green"))
    third = await ask(harness, QUESTION.model_copy(update={"id": "q3"}))
    await harness.decide(make_decision(third, "reject"))
    assert (await harness.run_call(QUESTION.model_copy(update={"id": "q2"}))).text == "green"
    assert (await harness.run_call(QUESTION.model_copy(update={"id": "q3"}))).refused
    assert harness.tools.calls_run == []


@pytest.mark.parametrize(
    ("decision", "error_text"),
    [
        ({"action": "edit"}, "needs the complete `arguments`"),
        ({"action": "edit", "arguments": {"command": 3}}, "`command` must be text"),
        ({"action": "edit", "arguments": {"command": "x", "more": 1}}, "`more` is not known"),
        ({"action": "approve", "arguments": {"command": "x"}}, "belong to `edit`"),
        ({"action": "approve", "answer": "x"}, "belongs to `answer`"),
        ({"action": "answer"}, "text of the answer"),
        ({"action": "answer", "answer": "  "}, "text of the answer"),
        ({"action": "reject", "always": "tool"}, "belongs to `approve`"),
    ],
)
async def test_invalid_decision_changes_nothing(
    harness: CallHarness, decision: dict[str, Any], error_text: str
) -> None:
    approval = await ask(harness)
    with pytest.raises(InvalidInput, match=error_text):
        await harness.decide(make_decision(approval, **decision))
    assert await harness.only_pending() == approval
    assert harness.decided_sessions == []
    assert await harness.events_of(DECIDED) == []


async def test_edit_into_denied_call_is_refused(store: Store) -> None:
    policy = Policy(rules=(PolicyRule(arguments={"command": "rm *"}, action=PolicyAction.DENY),))
    harness = await CallHarness.open(store, policy=policy)
    with pytest.raises(InvalidInput, match="denies"):
        await harness.decide(make_decision(await ask(harness), "edit", arguments={"command": "rm x"}))


async def test_approval_of_changed_call_is_refused(harness: CallHarness) -> None:
    approval = await ask(harness)
    with pytest.raises(Conflict, match="has changed since it was shown"):
        await harness.decide(make_decision(approval.model_copy(update={"digest": shell_call("other").digest})))
    assert await harness.only_pending() == approval


async def test_second_decision_is_refused_and_names_the_first(harness: CallHarness) -> None:
    approval = await ask(harness)
    results = await asyncio.gather(
        harness.decide(make_decision(approval), by="ann"),
        harness.decide(make_decision(approval, "reject"), by="bob"),
        return_exceptions=True,
    )
    assert not isinstance(results[0], BaseException)
    assert isinstance(results[1], Conflict) and "already approved by ann at 20" in str(results[1])
    with pytest.raises(Conflict, match="cannot be decided again"):
        await harness.decide(make_decision(approval), by="ann")
    assert len(await harness.events_of(DECIDED)) == 1


async def test_several_decisions_are_all_or_nothing(harness: CallHarness) -> None:
    one, two = await ask(harness), await ask(harness, shell_call(call_id="c2"))
    unknown = make_decision(two.model_copy(update={"id": "approval-x"}))
    with pytest.raises(NotFound, match="approval-x"):
        await harness.decide(make_decision(one), unknown)
    with pytest.raises(InvalidInput, match="2 decisions"):
        await harness.decide(make_decision(one), make_decision(one, "reject"))
    with pytest.raises(InvalidInput, match="1 to 100"):
        await harness.decide()
    assert list(await harness.pending()) == [one, two]
    await harness.decide(make_decision(one), make_decision(two, "reject"))
    assert await harness.pending() == []
    assert harness.decided_sessions == ["session-1"]


async def test_approval_is_invisible_to_other_tenants_and_sessions(harness: CallHarness) -> None:
    approval = await ask(harness)
    await harness.insert_session(make_session("session-2"))
    for tenant, session in (("u", "session-1"), ("t", "session-2"), ("t", "nobody")):
        with pytest.raises(NotFound):
            await harness.calls.decide_approvals(tenant, session, [make_decision(approval)], "eve")
    assert await harness.only_pending() == approval
    assert await harness.calls.list_approvals("u") == []


async def test_session_waits_until_last_approval_is_decided(harness: CallHarness) -> None:
    one, two = await ask(harness), await ask(harness, shell_call(call_id="c2"))
    await harness.decide(make_decision(one))
    assert (await harness.load_session()).state is SessionState.WAITING
    await harness.decide(make_decision(two))
    assert (await harness.load_session()).state is SessionState.RUNNING
    assert [each["state"] for each in await harness.events_of(STATE)] == ["waiting", "running"]


@pytest.mark.parametrize(
    ("end", "state"), [("waiting", SessionState.RUNNING), ("failed", SessionState.IDLE), ("done", SessionState.IDLE)]
)
async def test_state_after_last_decision_follows_the_turn(harness: CallHarness, end: Any, state: SessionState) -> None:
    approval = await ask(harness)
    await harness.emit(TurnEnded(turn=1, state=end))
    await harness.decide(make_decision(approval))
    assert (await harness.load_session()).state is state


async def test_always_for_a_call_adds_exact_rule(harness: CallHarness) -> None:
    await harness.decide(make_decision(await ask(harness, shell_call("rm *.o")), always="call"))
    assert not (await harness.run_call(shell_call("rm *.o", "c2"), wait=False)).refused
    await ask(harness, shell_call("rm x.o", "c3"))
    (changed,) = await harness.events_of(EventType.SESSION_CHANGED)
    assert changed["by"] == "ann"
    (rule,) = (await harness.load_session()).policy.rules
    assert Policy.model_validate(changed["policy"]).rules == (rule,)
    assert (rule.tool, dict(rule.arguments), rule.exact) == ("linux_run_shell_command", {"command": "rm [*].o"}, True)


async def test_always_for_a_tool_adds_tool_rule(harness: CallHarness) -> None:
    one, two = await ask(harness), await ask(harness, shell_call("ls", "c2"))
    await harness.decide(make_decision(one, always="tool"), make_decision(two, always="call"))
    assert not (await harness.run_call(shell_call("anything", "c3"), wait=False)).refused
    assert len((await harness.load_session()).policy.rules) == 2
    write = ToolCall(id="w", name="linux_write_file", arguments={"path": "/a", "content": "x"})
    await ask(harness, write)


async def test_always_rule_decides_pending_calls_of_the_tool(harness: CallHarness) -> None:
    one, two = await ask(harness), await ask(harness, shell_call("ls", "c2"))
    write = await ask(harness, ToolCall(id="w", name="linux_write_file", arguments={"path": "/a", "content": "x"}))
    question = await ask(harness, QUESTION)
    decided = await harness.decide(make_decision(one, always="tool"))
    assert [(each.id, each.state, each.decided_by, each.always) for each in decided] == [
        (one.id, ApprovalState.APPROVED, "ann", "tool"),
        (two.id, ApprovalState.APPROVED, "ann", None),
    ]
    assert {each.id for each in await harness.pending()} == {write.id, question.id}
    assert [each["approval_id"] for each in await harness.events_of(DECIDED)] == [one.id, two.id]
    assert not (await harness.run_call(shell_call("ls", "c2"), wait=False)).refused


async def test_always_rule_decides_identical_pending_calls(harness: CallHarness) -> None:
    one, same = await ask(harness), await ask(harness, shell_call(call_id="c2"))
    other = await ask(harness, shell_call("make clean", "c3"))
    decided = await harness.decide(make_decision(one, always="call"))
    assert [each.id for each in decided] == [one.id, same.id]
    assert await harness.only_pending() == other


async def test_always_rule_does_not_approve_denied_calls(harness: CallHarness) -> None:
    one, two = await ask(harness), await ask(harness, shell_call("rm -rf x", "c2"))
    denying = Policy(rules=(PolicyRule(tool="*", arguments={"command": "rm *"}, action=PolicyAction.DENY),))
    await harness.store.write(
        lambda connection: SessionStore.update_session(connection, "session-1", {"policy": denying}, START)
    )
    await harness.decide(make_decision(one, always="tool"))
    assert await harness.only_pending() == two


async def test_always_rule_with_too_long_arguments_is_refused(harness: CallHarness) -> None:
    approval = await ask(harness, shell_call("x" * 2000))
    with pytest.raises(InvalidInput, match="without `always`"):
        await harness.decide(make_decision(approval, always="call"))
    assert await harness.only_pending() == approval
    assert (await harness.load_session()).policy == Policy()


async def test_withdrawn_approval_cannot_be_decided(harness: CallHarness) -> None:
    waiting = asyncio.create_task(harness.run_call(shell_call()))
    (approval,) = await harness.wait_for_approvals()
    await harness.calls.withdraw_approvals("session-1", "cancelled by ann")
    result = await waiting
    assert result.refused and "cancelled by ann" in result.text
    with pytest.raises(Conflict, match="withdrawn"):
        await harness.decide(make_decision(approval))
    await harness.calls.withdraw_approvals("session-1", "again")
    (event,) = await harness.events_of(DECIDED)
    assert (event["state"], event["reason"]) == ("withdrawn", "cancelled by ann")
    assert harness.decided_sessions == []


async def test_decision_survives_cancelled_caller(harness: CallHarness) -> None:
    approval = await ask(harness)
    decide_task = asyncio.create_task(harness.decide(make_decision(approval)))
    await asyncio.sleep(0)
    decide_task.cancel()
    await asyncio.wait({decide_task})
    async with asyncio.timeout(10):
        while not harness.decided_sessions:
            await asyncio.sleep(0)
    assert (await harness.run_call(shell_call(), wait=False)).text == "did c1"


# Time


async def test_approvals_expire_after_configured_time(store: Store) -> None:
    harness = await CallHarness.open(store, approval_time=60)
    approval = await ask(harness)
    assert approval.expires_at == approval.created_at + timedelta(seconds=60)
    forever = await harness.restart(approval_time=None)
    assert (await ask(forever, shell_call(call_id="c2"))).expires_at is None


async def test_expired_call_is_refused(harness: CallHarness) -> None:
    approval = await ask(harness)
    assert await harness.calls.expire_approvals() == []
    await make_due(harness)
    with pytest.raises(Conflict, match="expired"):
        await harness.decide(make_decision(approval))
    assert await harness.calls.expire_approvals() == ["session-1"]
    assert await harness.calls.expire_approvals() == []
    with pytest.raises(Conflict, match="expired"):
        await harness.decide(make_decision(approval))
    result = await harness.run_call(shell_call())
    assert result.refused and "in time" in result.text
    assert harness.tools.calls_run == []
    assert harness.decided_sessions == ["session-1"]
    assert (await harness.event_types())[-3:] == [EventType.APPROVAL_EXPIRED, RESULT, STATE]
    assert (await harness.load_session()).state is SessionState.RUNNING


async def test_expiry_wakes_waiting_callers(store: Store) -> None:
    harness = await CallHarness.open(store, approval_time=1)
    await harness.calls.open()
    try:
        async with asyncio.timeout(20):
            assert (await harness.run_call(shell_call())).refused
        assert harness.decided_sessions == []
    finally:
        await harness.calls.close()


async def test_approval_overdue_at_start_expires_at_once(harness: CallHarness) -> None:
    await ask(harness)
    await make_due(harness)
    restarted = await harness.restart()
    session_continued = asyncio.Event()
    restarted.calls.on_decided = lambda session_id: session_continued.set()
    await restarted.calls.open()
    try:
        async with asyncio.timeout(20):
            await session_continued.wait()
        assert await restarted.pending() == []
    finally:
        await restarted.calls.close()


# The list


async def test_approvals_are_listed_newest_first(harness: CallHarness) -> None:
    approvals_made = [await ask(harness, shell_call(call_id=f"c{number}")) for number in range(5)]
    await harness.decide(make_decision(approvals_made[0]), make_decision(approvals_made[1], "reject", reason="no"))
    listed = await harness.calls.list_approvals("t")
    assert [approval.id for approval in listed] == [approval.id for approval in reversed(approvals_made)]
    assert [each.id for each in await harness.calls.list_approvals("t", limit=2)] == [
        approvals_made[4].id,
        approvals_made[3].id,
    ]
    assert [each.id for each in await harness.calls.list_approvals("t", limit=2, before=approvals_made[3].id)] == [
        approvals_made[2].id,
        approvals_made[1].id,
    ]
    (rejected,) = await harness.calls.list_approvals("t", state=ApprovalState.REJECTED)
    assert (rejected.id, rejected.reason, rejected.decided_by) == (approvals_made[1].id, "no", "ann")
    assert await harness.calls.list_approvals("t", session="other") == []
    with pytest.raises(InvalidInput, match="use the last id of an earlier page"):
        await harness.calls.list_approvals("t", before="nothing")
    with pytest.raises(InvalidInput, match="use the last id of an earlier page"):
        await harness.calls.list_approvals("u", before=approvals_made[0].id)
