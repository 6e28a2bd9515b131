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
    text_result,
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


async def test_an_allowed_call_is_run_and_told_once(harness: CallHarness) -> None:
    assert (await harness.perform(LOOK)).text == "did c1"
    assert (await harness.perform(LOOK)).text == "did c1"
    assert len(harness.tools.did) == 1
    assert await harness.order() == [READY, RUNNING, RESULT]
    (ready,) = await harness.told(READY)
    assert (ready["kind"], ready["tool"], ready["call"]["id"]) == ("linux", "read_file", "c1")
    (message,) = await harness.book.messages("session-1")
    assert (message.role, message.call_id, message.text, message.turn) == ("tool", "c1", "did c1", 1)


async def test_a_result_outlives_the_server(harness: CallHarness) -> None:
    await harness.perform(LOOK)
    assert (await (await harness.again()).perform(LOOK)).text == "did c1"
    assert len(harness.tools.did) == 1


async def test_whoever_asks_for_the_same_call_joins(store: Store) -> None:
    gate = asyncio.Event()

    async def work(call: ToolCall) -> CallResult:
        await gate.wait()
        return text_result("once")

    harness = await CallHarness.open(store, RecordingTools(work))
    several = [asyncio.create_task(harness.perform(LOOK, wait=wait)) for wait in (True, False, True)]
    while not harness.tools.did:
        await asyncio.sleep(0)
    several.append(asyncio.create_task(harness.perform(LOOK)))
    gate.set()
    assert {result.text for result in await asyncio.gather(*several)} == {"once"}
    assert len(harness.tools.did) == 1
    assert await harness.order() == [READY, RUNNING, RESULT]


async def test_calls_of_other_sessions_and_ids_are_others(harness: CallHarness) -> None:
    other = make_session("session-2")
    await harness.keep(other)
    await harness.perform(LOOK)
    await harness.calls.run_call(other, 1, LOOK, SPECS, wait=True)
    await harness.perform(LOOK.model_copy(update={"id": "c2"}))
    assert [call.id for call in harness.tools.did] == ["c1", "c1", "c2"]


@pytest.mark.parametrize(
    ("call", "says"),
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
async def test_a_call_that_makes_no_sense_is_refused_with_advice(
    harness: CallHarness, call: ToolCall, says: str
) -> None:
    result = await harness.perform(call)
    assert result.refused and says in result.text
    assert harness.tools.did == []
    assert await harness.order() == [READY, RESULT]
    assert (await harness.book.messages("session-1"))[0].text == result.text


async def test_arguments_may_be_any_text(harness: CallHarness) -> None:
    odd = ToolCall(id="c1", name="linux_read_file", arguments={"path": "a\ud800\x00\U0001f600"})
    assert (await harness.perform(odd)).text == "did c1"
    assert harness.tools.did == [odd]


async def test_a_result_may_be_any_text(store: Store) -> None:
    async def work(call: ToolCall) -> CallResult:
        return text_result("a\ud800b\x00")

    harness = await CallHarness.open(store, RecordingTools(work))
    assert await harness.perform(LOOK) == await (await harness.again()).perform(LOOK)


async def test_the_very_same_call_is_refused_after_so_many_in_a_row(store: Store) -> None:
    harness = await CallHarness.open(store, repeats=3)
    results = [await harness.perform(LOOK.model_copy(update={"id": f"c{number}"})) for number in range(5)]
    assert [result.refused for result in results] == [False, False, False, True, True]
    assert "3 times in a row" in results[3].text
    other = ToolCall(id="x", name="linux_read_file", arguments={"path": "/b"})
    assert not (await harness.perform(other)).refused
    assert not (await harness.perform(LOOK.model_copy(update={"id": "y"}))).refused


async def test_a_new_turn_counts_anew(store: Store) -> None:
    harness = await CallHarness.open(store, repeats=2)
    for turn in (1, 2):
        for number in range(2):
            assert not (await harness.perform(LOOK.model_copy(update={"id": f"{turn}.{number}"}), turn=turn)).refused


async def test_what_the_policy_denies_is_not_run(store: Store) -> None:
    policy = Policy(rules=(PolicyRule(tool="read_*", action=PolicyAction.DENY),))
    harness = await CallHarness.open(store, policy=policy)
    result = await harness.perform(LOOK)
    assert result.refused and "denies" in result.text
    assert harness.tools.did == []


async def test_the_policy_is_the_one_that_holds_now(harness: CallHarness) -> None:
    def work(connection: Any) -> None:
        harness.book.alter(
            connection, "session-1", {"policy": Policy(allow_all=("linux",))}, harness.session.created_at
        )

    await harness.store.write(work)
    assert (await harness.perform(shell_call())).text == "did c1"


async def test_asking_is_one_transaction(harness: CallHarness) -> None:
    with pytest.raises(ApprovalNeeded) as raised:
        await harness.perform(shell_call(), wait=False)
    with pytest.raises(ApprovalNeeded) as again:
        await harness.perform(shell_call(), wait=False)
    assert raised.value.approval == again.value.approval == await harness.only()
    assert await harness.order() == [READY, REQUIRED, STATE]
    assert (await harness.now()).state is SessionState.WAITING
    approval = raised.value.approval
    assert (approval.type, approval.digest, approval.call_id) == ("call", shell_call().digest, "c1")
    assert (await harness.told(REQUIRED))[0]["approval"]["id"] == approval.id
    assert harness.tools.did == []


async def test_several_wait_and_are_decided_one_by_one(harness: CallHarness) -> None:
    calls = [asyncio.create_task(harness.perform(shell_call(call_id=f"c{number}"))) for number in range(3)]
    await harness.asked(3)
    for count, approval in enumerate(sorted(await harness.pending(), key=lambda each: each.call_id)):
        assert (await harness.now()).state is SessionState.WAITING
        await harness.decide(make_decision(approval))
        assert (await calls[count]).text == f"did c{count}"
    assert (await harness.now()).state is SessionState.RUNNING
    assert harness.heard == []


async def test_a_runner_that_raises_gives_a_failed_result(store: Store) -> None:
    async def work(call: ToolCall) -> CallResult:
        if call.id == "c1":
            raise RuntimeError("broken")
        raise asyncio.CancelledError

    harness = await CallHarness.open(store, RecordingTools(work))
    result = await harness.perform(LOOK)
    assert result.failed and "broken" in result.text
    assert (await harness.perform(LOOK.model_copy(update={"id": "c2"}))).failed


async def test_a_cancelled_call_is_ended_and_gets_a_result_when_it_is_abandoned(store: Store) -> None:
    ended = asyncio.Event()

    async def work(call: ToolCall) -> CallResult:
        try:
            return await run_forever(call)
        finally:
            ended.set()

    harness = await CallHarness.open(store, RecordingTools(work))
    task = asyncio.create_task(harness.perform(LOOK))
    while not harness.tools.did:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
    assert await harness.order() == [READY, RUNNING]
    await harness.calls.abandon_calls("session-1", 1, "by ann")
    result = await harness.perform(LOOK)
    assert result.failed and "cancelled (by ann)" in result.text
    await harness.calls.abandon_calls("session-1", 1, "again")
    assert await harness.order() == [READY, RUNNING, RESULT]
    assert len(harness.tools.did) == 1


async def test_a_call_goes_on_while_anybody_waits_for_it(store: Store) -> None:
    gate = asyncio.Event()

    async def work(call: ToolCall) -> CallResult:
        await gate.wait()
        return text_result("done")

    harness = await CallHarness.open(store, RecordingTools(work))
    one, two = (asyncio.create_task(harness.perform(LOOK)) for _ in range(2))
    while not harness.tools.did:
        await asyncio.sleep(0)
    one.cancel()
    await asyncio.wait({one})
    gate.set()
    assert (await two).text == "done"


async def test_whoever_comes_while_a_call_is_broken_off_is_not_broken_off_too(store: Store) -> None:
    ending, go = asyncio.Event(), asyncio.Event()

    async def work(call: ToolCall) -> CallResult:
        try:
            return await run_forever(call)
        finally:
            ending.set()
            await go.wait()

    harness = await CallHarness.open(store, RecordingTools(work))
    first = asyncio.create_task(harness.perform(shell_call()))
    await harness.asked()
    await harness.decide(make_decision(await harness.only()))
    while not harness.tools.did:
        await asyncio.sleep(0)
    first.cancel()
    await ending.wait()
    second = asyncio.create_task(harness.perform(shell_call()))
    await asyncio.sleep(0)
    go.set()
    assert "may or may not have happened" in (await second).text
    assert len(harness.tools.did) == 1


@pytest.mark.parametrize(("call", "times"), [(LOOK, 2), (ToolCall(id="c1", name="linux_click", arguments={"x": 1}), 1)])
async def test_what_was_under_way_in_another_life_is_repeated_only_if_it_looks(
    store: Store, call: ToolCall, times: int
) -> None:
    harness = await CallHarness.open(store, RecordingTools(run_forever))
    dead = asyncio.create_task(harness.perform(call))
    while not harness.tools.did:
        await asyncio.sleep(0)
    dead.cancel()
    await asyncio.wait({dead})
    harness.tools.then = None
    result = await (await harness.again()).perform(call)
    assert len(harness.tools.did) == times
    assert result.failed == (times == 1)
    assert ("running when the server stopped" in result.text) == (times == 1)
    assert await harness.order() == [READY, RUNNING, RESULT]


async def test_what_is_run_is_what_was_recorded(harness: CallHarness) -> None:
    with pytest.raises(ApprovalNeeded):
        await harness.perform(shell_call("make"), wait=False)
    await harness.decide(make_decision(await harness.only()))
    await harness.perform(shell_call("rm -rf /"))
    assert harness.tools.did == [shell_call("make")]


async def test_a_tool_that_is_gone_when_it_is_approved_is_not_run(harness: CallHarness) -> None:
    with pytest.raises(ApprovalNeeded):
        await harness.perform(shell_call(), wait=False)
    await harness.decide(make_decision(await harness.only()))
    result = await harness.calls.run_call(harness.session, 1, shell_call(), {}, wait=True)
    assert result.refused and "any more" in result.text


async def test_calls_that_nobody_came_to_are_abandoned_too(harness: CallHarness) -> None:
    await harness.say(LOOK, shell_call(call_id="c2"), shell_call(call_id="c3"))
    await harness.perform(LOOK)
    with pytest.raises(ApprovalNeeded):
        await harness.perform(shell_call(call_id="c2"), wait=False)
    await harness.calls.withdraw_approvals("session-1", "cancelled by ann")
    await harness.calls.abandon_calls("session-1", 1, "by ann")
    for call_id in ("c2", "c3"):
        assert (await harness.perform(shell_call(call_id=call_id), turn=2)).refused
    assert [call.id for call in harness.tools.did] == ["c1"]
    assert len(await harness.told(RESULT)) == 3
    assert await harness.pending() == []


async def test_abandoning_asks_nobody_any_more(harness: CallHarness) -> None:
    waiting = asyncio.create_task(harness.perform(shell_call()))
    await harness.asked()
    await harness.calls.abandon_calls("session-1", 1, "by ann")
    assert (await waiting).refused
    assert await harness.pending() == []


async def test_a_session_that_is_gone_is_no_trouble(harness: CallHarness) -> None:
    await harness.calls.withdraw_approvals("nobody", "deleted")
    await harness.calls.abandon_calls("nobody", 1, "deleted")
    with pytest.raises(SessionNotFound):
        await harness.calls.run_call(make_session("nobody"), 1, LOOK, SPECS, wait=True)


async def test_a_row_is_written_once_and_closed_calls_end(harness: CallHarness) -> None:
    await asyncio.gather(*(harness.perform(LOOK) for _ in range(5)))
    count = select(func.count()).select_from(session_calls)
    assert await harness.store.read(lambda connection: connection.execute(count).scalar_one()) == 1
    await harness.calls.open()
    await harness.calls.close()


# What agent programs carry out themselves

BASH = ToolCall(id="b1", name="Bash", arguments={"command": "make"})
OPTIONS = (QuestionChoice(id="once", label="Yes"), QuestionChoice(id="never", label="No, never"))


async def consult(harness: CallHarness, effect: str = "command", **fields: Any) -> Any:
    return await harness.calls.authorize_call(harness.session, 1, BASH, effect=effect, **{"kind": "code"} | fields)


async def test_harmless_calls_of_others_are_allowed_and_settled(harness: CallHarness) -> None:
    assert (await consult(harness, "none")).allowed
    await harness.calls.record_result(harness.session, 1, BASH, text_result("first"))
    await harness.calls.record_result(harness.session, 1, BASH, text_result("second"))
    assert await harness.order() == [READY, RUNNING, RESULT]
    assert [message.text for message in await harness.book.messages("session-1")] == ["first"]


async def test_a_call_of_others_is_of_the_kind_that_they_say(harness: CallHarness) -> None:
    task = ToolCall(id="t1", name="task", arguments={})
    assert (await harness.calls.authorize_call(harness.session, 1, task, effect="none")).allowed
    await consult(harness, "none")
    await harness.calls.record_result(
        harness.session, 1, ToolCall(id="t2", name="task", arguments={}), text_result("done")
    )
    await harness.calls.record_result(
        harness.session, 1, ToolCall(id="b2", name="Bash", arguments={}), text_result("done"), kind="code"
    )
    kinds = {each["call"]["id"]: each.get("kind") for each in await harness.told(READY)}
    assert kinds == {"t1": None, "b1": "code", "t2": None, "b2": "code"}


async def test_calls_that_nobody_asked_about_are_written_down(harness: CallHarness) -> None:
    await harness.calls.record_result(harness.session, 1, BASH, text_result("done"))
    assert await harness.order() == [READY, RUNNING, RESULT]
    assert (await consult(harness)).allowed


async def test_what_is_denied_to_others_has_its_result_at_once(store: Store) -> None:
    harness = await CallHarness.open(store, policy=Policy(rules=(PolicyRule(tool="Bash", action=PolicyAction.DENY),)))
    verdict = await consult(harness)
    assert not verdict.allowed and "denies" in str(verdict.reason)
    assert await harness.order() == [READY, RESULT]
    assert await consult(await harness.again()) == verdict


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"action": "approve"}, {"allowed": True}),
        ({"action": "approve", "always": "tool"}, {"allowed": True, "always": True}),
        ({"action": "approve", "answer": "Yes"}, {"allowed": True, "choice": "once"}),
        ({"action": "reject", "answer": "never"}, {"allowed": False, "choice": "never"}),
        ({"action": "reject", "reason": "not now"}, {"allowed": False, "reason": "not now", "choice": None}),
    ],
)
async def test_a_person_decides_for_others_and_the_verdict_stays(
    harness: CallHarness, given: dict[str, Any], expected: dict[str, Any]
) -> None:
    waiting = asyncio.create_task(consult(harness, question="May I?", choices=OPTIONS))
    await harness.asked()
    approval = await harness.only()
    assert (approval.question, approval.choices, approval.actions) == ("May I?", OPTIONS, ("approve", "reject"))
    await harness.decide(make_decision(approval, **given))
    verdict = await waiting
    assert {name: getattr(verdict, name) for name in expected} == expected
    assert await consult(await harness.again(), question="May I?", choices=OPTIONS) == verdict
    assert len(await harness.told(RUNNING)) == int(verdict.allowed)
    assert harness.tools.did == []


async def test_a_call_that_others_settle_before_the_decision_needs_none(harness: CallHarness) -> None:
    waiting = asyncio.create_task(consult(harness))
    await harness.asked()
    await harness.calls.record_result(harness.session, 1, BASH, CallResult(failed=True))
    assert not (await waiting).allowed
    assert await harness.pending() == []
    assert (await harness.now()).state is SessionState.RUNNING
