"""Calls are recorded before they run, run once, and always get a result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from paddock.agents.engines.base import ApprovalNeeded
from paddock.errors import SessionNotFound
from paddock.model.events import EventType
from paddock.model.sessions import CallResult, Policy, PolicyAction, PolicyRule, QuestionChoice, SessionState, ToolCall
from paddock.store.database import Store
from paddock.store.tables import session_calls
from tests.unit.agents.call_harness import (
    SPECS,
    CallHarness,
    RecordingTools,
    make_decision,
    make_session,
    run_forever,
    shell_call,
    text_tool_result,
)

pytestmark = pytest.mark.anyio
READY, RUNNING, RESULT = EventType.CALL_READY, EventType.CALL_RUNNING, EventType.CALL_RESULT
REQUIRED, DECIDED, STATE = EventType.APPROVAL_REQUIRED, EventType.APPROVAL_DECIDED, EventType.SESSION_STATE
LOOK = ToolCall(id="c1", name="linux_read_file", arguments={"path": "/a"})


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with await Store.open(tmp_path / "p.db") as opened:
        yield opened


@pytest.fixture
async def harness(store: Store) -> CallHarness:
    return await CallHarness.open(store)


async def test_allowed_call_runs_and_is_emitted_once(harness: CallHarness) -> None:
    assert (await harness.run_call(LOOK)).text == "did c1"
    assert (await harness.run_call(LOOK)).text == "did c1"
    assert len(harness.tools.calls_run) == 1
    assert await harness.event_types() == [READY, RUNNING, RESULT]
    (ready,) = await harness.events_of(READY)
    assert (ready["kind"], ready["tool"], ready["call"]["id"]) == ("linux", "read_file", "c1")
    (message,) = await harness.session_store.list_messages("session-1")
    assert (message.role, message.call_id, message.text, message.turn) == ("tool", "c1", "did c1", 1)


async def test_result_survives_restart(harness: CallHarness) -> None:
    await harness.run_call(LOOK)
    assert (await (await harness.restart()).run_call(LOOK)).text == "did c1"
    assert len(harness.tools.calls_run) == 1


async def test_concurrent_requests_for_a_call_share_one_run(store: Store) -> None:
    gate = asyncio.Event()

    async def work(call: ToolCall) -> CallResult:
        await gate.wait()
        return text_tool_result("once")

    harness = await CallHarness.open(store, RecordingTools(work))
    callers = [asyncio.create_task(harness.run_call(LOOK, wait=wait)) for wait in (True, False, True)]
    while not harness.tools.calls_run:
        await asyncio.sleep(0)
    callers.append(asyncio.create_task(harness.run_call(LOOK)))
    gate.set()
    assert {result.text for result in await asyncio.gather(*callers)} == {"once"}
    assert len(harness.tools.calls_run) == 1
    assert await harness.event_types() == [READY, RUNNING, RESULT]


async def test_calls_are_identified_by_session_and_id(harness: CallHarness) -> None:
    other = make_session("session-2")
    await harness.insert_session(other)
    await harness.run_call(LOOK)
    await harness.calls.run_call(other, 1, LOOK, SPECS, wait=True)
    await harness.run_call(LOOK.model_copy(update={"id": "c2"}))
    assert [call.id for call in harness.tools.calls_run] == ["c1", "c1", "c2"]


@pytest.mark.parametrize(
    ("call", "expected_text"),
    [
        (ToolCall(id="c", name="linux_read_fiel", arguments={}), "Did you mean linux_read_file"),
        (ToolCall(id="c", name="write_file", arguments={}), "linux_write_file"),
        (ToolCall(id="c", name="zzz", arguments={}), "list_tools"),
        (ToolCall(id="c", name="linux_read_file", malformed="{path: '\ud800"), "not a JSON object"),
        (ToolCall(id="c", name="linux_read_file", arguments={"path": 3}), "`path` must be text"),
        (ToolCall(id="c", name="linux_read_file", arguments={"path": "a", "mode": "x"}), "`mode` is not known"),
        (ToolCall(id="c", name="linux_run_shell_command", arguments={}), "`command` is missing"),
    ],
)
async def test_invalid_call_is_refused_with_advice(harness: CallHarness, call: ToolCall, expected_text: str) -> None:
    result = await harness.run_call(call)
    assert result.refused and expected_text in result.text
    assert harness.tools.calls_run == []
    assert await harness.event_types() == [READY, RESULT]
    assert (await harness.session_store.list_messages("session-1"))[0].text == result.text


async def test_arguments_may_be_any_text(harness: CallHarness) -> None:
    odd_call = ToolCall(id="c1", name="linux_read_file", arguments={"path": "a\ud800\x00\U0001f600"})
    assert (await harness.run_call(odd_call)).text == "did c1"
    assert harness.tools.calls_run == [odd_call]


async def test_result_may_be_any_text(store: Store) -> None:
    async def work(call: ToolCall) -> CallResult:
        return text_tool_result("a\ud800b\x00")

    harness = await CallHarness.open(store, RecordingTools(work))
    assert await harness.run_call(LOOK) == await (await harness.restart()).run_call(LOOK)


async def test_identical_call_is_refused_after_repeat_limit(store: Store) -> None:
    harness = await CallHarness.open(store, repeats=3)
    results = [await harness.run_call(LOOK.model_copy(update={"id": f"c{number}"})) for number in range(5)]
    assert [result.refused for result in results] == [False, False, False, True, True]
    assert "3 times in a row" in results[3].text
    other = ToolCall(id="x", name="linux_read_file", arguments={"path": "/b"})
    assert not (await harness.run_call(other)).refused
    assert not (await harness.run_call(LOOK.model_copy(update={"id": "y"}))).refused


async def test_repeat_count_restarts_in_new_turn(store: Store) -> None:
    harness = await CallHarness.open(store, repeats=2)
    for turn in (1, 2):
        for number in range(2):
            assert not (await harness.run_call(LOOK.model_copy(update={"id": f"{turn}.{number}"}), turn=turn)).refused


async def test_denied_call_is_not_run(store: Store) -> None:
    policy = Policy(rules=(PolicyRule(tool="read_*", action=PolicyAction.DENY),))
    harness = await CallHarness.open(store, policy=policy)
    result = await harness.run_call(LOOK)
    assert result.refused and "denies" in result.text
    assert harness.tools.calls_run == []


async def test_current_policy_applies(harness: CallHarness) -> None:
    def work(connection: Any) -> None:
        harness.session_store.update_session(
            connection, "session-1", {"policy": Policy(allow_all=("linux",))}, harness.session.created_at
        )

    await harness.store.write(work)
    assert (await harness.run_call(shell_call())).text == "did c1"


async def test_approval_request_is_one_transaction(harness: CallHarness) -> None:
    with pytest.raises(ApprovalNeeded) as raised:
        await harness.run_call(shell_call(), wait=False)
    with pytest.raises(ApprovalNeeded) as repeated:
        await harness.run_call(shell_call(), wait=False)
    assert raised.value.approval == repeated.value.approval == await harness.only_pending()
    assert await harness.event_types() == [READY, REQUIRED, STATE]
    assert (await harness.load_session()).state is SessionState.WAITING
    approval = raised.value.approval
    assert (approval.type, approval.digest, approval.call_id) == ("call", shell_call().digest, "c1")
    assert (await harness.events_of(REQUIRED))[0]["approval"]["id"] == approval.id
    assert harness.tools.calls_run == []


async def test_pending_calls_are_decided_one_by_one(harness: CallHarness) -> None:
    calls = [asyncio.create_task(harness.run_call(shell_call(call_id=f"c{number}"))) for number in range(3)]
    await harness.wait_for_approvals(3)
    for count, approval in enumerate(sorted(await harness.pending(), key=lambda each: each.call_id)):
        assert (await harness.load_session()).state is SessionState.WAITING
        await harness.decide(make_decision(approval))
        assert (await calls[count]).text == f"did c{count}"
    assert (await harness.load_session()).state is SessionState.RUNNING
    assert harness.decided_sessions == []


async def test_exception_of_tool_is_failed_result(store: Store) -> None:
    async def work(call: ToolCall) -> CallResult:
        if call.id == "c1":
            raise RuntimeError("broken")
        raise asyncio.CancelledError

    harness = await CallHarness.open(store, RecordingTools(work))
    result = await harness.run_call(LOOK)
    assert result.failed and "broken" in result.text
    assert (await harness.run_call(LOOK.model_copy(update={"id": "c2"}))).failed


async def test_abandoned_call_gets_result_after_cancellation(store: Store) -> None:
    ended = asyncio.Event()

    async def work(call: ToolCall) -> CallResult:
        try:
            return await run_forever(call)
        finally:
            ended.set()

    harness = await CallHarness.open(store, RecordingTools(work))
    task = asyncio.create_task(harness.run_call(LOOK))
    while not harness.tools.calls_run:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
    assert await harness.event_types() == [READY, RUNNING]
    await harness.calls.abandon_calls("session-1", 1, "by ann")
    result = await harness.run_call(LOOK)
    assert result.failed and "cancelled (by ann)" in result.text
    await harness.calls.abandon_calls("session-1", 1, "again")
    assert await harness.event_types() == [READY, RUNNING, RESULT]
    assert len(harness.tools.calls_run) == 1


async def test_call_continues_while_one_caller_waits(store: Store) -> None:
    gate = asyncio.Event()

    async def work(call: ToolCall) -> CallResult:
        await gate.wait()
        return text_tool_result("done")

    harness = await CallHarness.open(store, RecordingTools(work))
    cancelled, waiting = (asyncio.create_task(harness.run_call(LOOK)) for _ in range(2))
    while not harness.tools.calls_run:
        await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait({cancelled})
    gate.set()
    assert (await waiting).text == "done"


async def test_new_caller_survives_cancellation_of_the_previous_one(store: Store) -> None:
    ending, may_end = asyncio.Event(), asyncio.Event()

    async def work(call: ToolCall) -> CallResult:
        try:
            return await run_forever(call)
        finally:
            ending.set()
            await may_end.wait()

    harness = await CallHarness.open(store, RecordingTools(work))
    first = asyncio.create_task(harness.run_call(shell_call()))
    await harness.wait_for_approvals()
    await harness.decide(make_decision(await harness.only_pending()))
    while not harness.tools.calls_run:
        await asyncio.sleep(0)
    first.cancel()
    await ending.wait()
    second = asyncio.create_task(harness.run_call(shell_call()))
    await asyncio.sleep(0)
    may_end.set()
    assert "may or may not have happened" in (await second).text
    assert len(harness.tools.calls_run) == 1


@pytest.mark.parametrize(
    ("call", "run_count"), [(LOOK, 2), (ToolCall(id="c1", name="linux_click", arguments={"x": 1}), 1)]
)
async def test_interrupted_call_is_repeated_only_if_read_only(store: Store, call: ToolCall, run_count: int) -> None:
    harness = await CallHarness.open(store, RecordingTools(run_forever))
    killed = asyncio.create_task(harness.run_call(call))
    while not harness.tools.calls_run:
        await asyncio.sleep(0)
    killed.cancel()
    await asyncio.wait({killed})
    harness.tools.behavior = None
    result = await (await harness.restart()).run_call(call)
    assert len(harness.tools.calls_run) == run_count
    assert result.failed == (run_count == 1)
    assert ("running when the server stopped" in result.text) == (run_count == 1)
    assert await harness.event_types() == [READY, RUNNING, RESULT]


async def test_recorded_arguments_are_run(harness: CallHarness) -> None:
    with pytest.raises(ApprovalNeeded):
        await harness.run_call(shell_call("make"), wait=False)
    await harness.decide(make_decision(await harness.only_pending()))
    await harness.run_call(shell_call("rm -rf /"))
    assert harness.tools.calls_run == [shell_call("make")]


async def test_approved_call_of_removed_tool_is_refused(harness: CallHarness) -> None:
    with pytest.raises(ApprovalNeeded):
        await harness.run_call(shell_call(), wait=False)
    await harness.decide(make_decision(await harness.only_pending()))
    result = await harness.calls.run_call(harness.session, 1, shell_call(), {}, wait=True)
    assert result.refused and "any more" in result.text


async def test_calls_never_started_are_abandoned_too(harness: CallHarness) -> None:
    await harness.store_calls(LOOK, shell_call(call_id="c2"), shell_call(call_id="c3"))
    await harness.run_call(LOOK)
    with pytest.raises(ApprovalNeeded):
        await harness.run_call(shell_call(call_id="c2"), wait=False)
    await harness.calls.withdraw_approvals("session-1", "cancelled by ann")
    await harness.calls.abandon_calls("session-1", 1, "by ann")
    for call_id in ("c2", "c3"):
        assert (await harness.run_call(shell_call(call_id=call_id), turn=2)).refused
    assert [call.id for call in harness.tools.calls_run] == ["c1"]
    assert len(await harness.events_of(RESULT)) == 3
    assert await harness.pending() == []


async def test_abandoning_withdraws_approval(harness: CallHarness) -> None:
    waiting = asyncio.create_task(harness.run_call(shell_call()))
    await harness.wait_for_approvals()
    await harness.calls.abandon_calls("session-1", 1, "by ann")
    assert (await waiting).refused
    assert await harness.pending() == []


async def test_deleted_session_has_no_calls(harness: CallHarness) -> None:
    await harness.calls.withdraw_approvals("nobody", "deleted")
    await harness.calls.abandon_calls("nobody", 1, "deleted")
    with pytest.raises(SessionNotFound):
        await harness.calls.run_call(make_session("nobody"), 1, LOOK, SPECS, wait=True)


async def test_concurrent_callers_write_one_row(harness: CallHarness) -> None:
    await asyncio.gather(*(harness.run_call(LOOK) for _ in range(5)))
    count = select(func.count()).select_from(session_calls)
    assert await harness.store.read(lambda connection: connection.execute(count).scalar_one()) == 1
    await harness.calls.open()
    await harness.calls.close()


# Calls that agent programs run themselves

BASH = ToolCall(id="b1", name="Bash", arguments={"command": "make"})
OPTIONS = (QuestionChoice(id="once", label="Yes"), QuestionChoice(id="never", label="No, never"))


async def authorize(harness: CallHarness, effect: str = "command", **fields: Any) -> Any:
    return await harness.calls.authorize_call(harness.session, 1, BASH, effect=effect, **{"kind": "code"} | fields)


async def test_external_read_only_call_is_allowed_and_recorded(harness: CallHarness) -> None:
    assert (await authorize(harness, "none")).allowed
    await harness.calls.record_result(harness.session, 1, BASH, text_tool_result("first"))
    await harness.calls.record_result(harness.session, 1, BASH, text_tool_result("second"))
    assert await harness.event_types() == [READY, RUNNING, RESULT]
    assert [message.text for message in await harness.session_store.list_messages("session-1")] == ["first"]


async def test_external_call_has_given_kind(harness: CallHarness) -> None:
    task = ToolCall(id="t1", name="task", arguments={})
    assert (await harness.calls.authorize_call(harness.session, 1, task, effect="none")).allowed
    await authorize(harness, "none")
    await harness.calls.record_result(
        harness.session, 1, ToolCall(id="t2", name="task", arguments={}), text_tool_result("done")
    )
    await harness.calls.record_result(
        harness.session, 1, ToolCall(id="b2", name="Bash", arguments={}), text_tool_result("done"), kind="code"
    )
    kinds = {each["call"]["id"]: each.get("kind") for each in await harness.events_of(READY)}
    assert kinds == {"t1": None, "b1": "code", "t2": None, "b2": "code"}


async def test_result_of_unannounced_external_call_is_recorded(harness: CallHarness) -> None:
    await harness.calls.record_result(harness.session, 1, BASH, text_tool_result("done"))
    assert await harness.event_types() == [READY, RUNNING, RESULT]
    assert (await authorize(harness)).allowed


async def test_denied_external_call_has_result_at_once(store: Store) -> None:
    harness = await CallHarness.open(store, policy=Policy(rules=(PolicyRule(tool="Bash", action=PolicyAction.DENY),)))
    verdict = await authorize(harness)
    assert not verdict.allowed and "denies" in str(verdict.reason)
    assert await harness.event_types() == [READY, RESULT]
    assert await authorize(await harness.restart()) == verdict


@pytest.mark.parametrize(
    ("decision", "expected"),
    [
        ({"action": "approve"}, {"allowed": True}),
        ({"action": "approve", "always": "tool"}, {"allowed": True, "always": True}),
        ({"action": "approve", "answer": "Yes"}, {"allowed": True, "choice": "once"}),
        ({"action": "reject", "answer": "never"}, {"allowed": False, "choice": "never"}),
        ({"action": "reject", "reason": "not now"}, {"allowed": False, "reason": "not now", "choice": None}),
    ],
)
async def test_verdict_on_external_call_survives_restart(
    harness: CallHarness, decision: dict[str, Any], expected: dict[str, Any]
) -> None:
    waiting = asyncio.create_task(authorize(harness, question="May I?", choices=OPTIONS))
    await harness.wait_for_approvals()
    approval = await harness.only_pending()
    assert (approval.question, approval.choices, approval.actions) == ("May I?", OPTIONS, ("approve", "reject"))
    await harness.decide(make_decision(approval, **decision))
    verdict = await waiting
    assert {name: getattr(verdict, name) for name in expected} == expected
    assert await authorize(await harness.restart(), question="May I?", choices=OPTIONS) == verdict
    assert len(await harness.events_of(RUNNING)) == int(verdict.allowed)
    assert harness.tools.calls_run == []


async def test_result_of_external_call_withdraws_its_approval(harness: CallHarness) -> None:
    waiting = asyncio.create_task(authorize(harness))
    await harness.wait_for_approvals()
    await harness.calls.record_result(harness.session, 1, BASH, CallResult(failed=True))
    assert not (await waiting).allowed
    assert await harness.pending() == []
    assert (await harness.load_session()).state is SessionState.RUNNING
