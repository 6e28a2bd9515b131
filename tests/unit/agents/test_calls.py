"""Calls are recorded before anything is done about them, run once, and answered in any case."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select
from tests.unit.agents.desk import SPECS, Desk, Tools, a_session, decision, never, said, shell

from paddock.agents.engines.base import Undecided
from paddock.errors import SessionNotFound
from paddock.model.events import EventType
from paddock.model.sessions import Action, Call, CallResult, Choice, Policy, Rule, SessionState
from paddock.store.database import Store
from paddock.store.tables import session_calls

pytestmark = pytest.mark.anyio
READY, RUNNING, RESULT = EventType.CALL_READY, EventType.CALL_RUNNING, EventType.CALL_RESULT
REQUIRED, DECIDED, STATE = EventType.APPROVAL_REQUIRED, EventType.APPROVAL_DECIDED, EventType.SESSION_STATE
LOOK = Call(id="c1", name="linux_read_file", arguments={"path": "/a"})


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with await Store.open(tmp_path / "p.db") as opened:
        yield opened


@pytest.fixture
async def desk(store: Store) -> Desk:
    return await Desk.open(store)


async def test_an_allowed_call_is_run_and_told_once(desk: Desk) -> None:
    assert (await desk.perform(LOOK)).text == "did c1"
    assert (await desk.perform(LOOK)).text == "did c1"
    assert len(desk.tools.did) == 1
    assert await desk.order() == [READY, RUNNING, RESULT]
    (ready,) = await desk.told(READY)
    assert (ready["kind"], ready["tool"], ready["call"]["id"]) == ("linux", "read_file", "c1")
    (message,) = await desk.book.messages("session-1")
    assert (message.role, message.call_id, message.text, message.turn) == ("tool", "c1", "did c1", 1)


async def test_a_result_outlives_the_server(desk: Desk) -> None:
    await desk.perform(LOOK)
    assert (await (await desk.again()).perform(LOOK)).text == "did c1"
    assert len(desk.tools.did) == 1


async def test_whoever_asks_for_the_same_call_joins(store: Store) -> None:
    gate = asyncio.Event()

    async def work(call: Call) -> CallResult:
        await gate.wait()
        return said("once")

    desk = await Desk.open(store, Tools(work))
    several = [asyncio.create_task(desk.perform(LOOK, wait=wait)) for wait in (True, False, True)]
    while not desk.tools.did:
        await asyncio.sleep(0)
    several.append(asyncio.create_task(desk.perform(LOOK)))
    gate.set()
    assert {result.text for result in await asyncio.gather(*several)} == {"once"}
    assert len(desk.tools.did) == 1
    assert await desk.order() == [READY, RUNNING, RESULT]


async def test_calls_of_other_sessions_and_ids_are_others(desk: Desk) -> None:
    other = a_session("session-2")
    await desk.keep(other)
    await desk.perform(LOOK)
    await desk.calls.perform(other, 1, LOOK, SPECS, wait=True)
    await desk.perform(LOOK.model_copy(update={"id": "c2"}))
    assert [call.id for call in desk.tools.did] == ["c1", "c1", "c2"]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (Call(id="c", name="linux_read_fiel", arguments={}), "Did you mean linux_read_file"),
        (Call(id="c", name="write_file", arguments={}), "linux_write_file"),
        (Call(id="c", name="zzz", arguments={}), "list_tools"),
        (Call(id="c", name="linux_read_file", malformed="{path: '\ud800"), "not a JSON object"),
        (Call(id="c", name="linux_read_file", arguments={"path": 3}), "`path` must be text"),
        (Call(id="c", name="linux_read_file", arguments={"path": "a", "mode": "x"}), "`mode` is not known"),
        (Call(id="c", name="linux_run_shell_command", arguments={}), "`command` is missing"),
    ],
)
async def test_a_call_that_makes_no_sense_is_refused_with_advice(desk: Desk, call: Call, says: str) -> None:
    result = await desk.perform(call)
    assert result.refused and says in result.text
    assert desk.tools.did == []
    assert await desk.order() == [READY, RESULT]
    assert (await desk.book.messages("session-1"))[0].text == result.text


async def test_arguments_may_be_any_text(desk: Desk) -> None:
    odd = Call(id="c1", name="linux_read_file", arguments={"path": "a\ud800\x00\U0001f600"})
    assert (await desk.perform(odd)).text == "did c1"
    assert desk.tools.did == [odd]


async def test_a_result_may_be_any_text(store: Store) -> None:
    async def work(call: Call) -> CallResult:
        return said("a\ud800b\x00")

    desk = await Desk.open(store, Tools(work))
    assert await desk.perform(LOOK) == await (await desk.again()).perform(LOOK)


async def test_the_very_same_call_is_refused_after_so_many_in_a_row(store: Store) -> None:
    desk = await Desk.open(store, repeats=3)
    results = [await desk.perform(LOOK.model_copy(update={"id": f"c{number}"})) for number in range(5)]
    assert [result.refused for result in results] == [False, False, False, True, True]
    assert "3 times in a row" in results[3].text
    other = Call(id="x", name="linux_read_file", arguments={"path": "/b"})
    assert not (await desk.perform(other)).refused
    assert not (await desk.perform(LOOK.model_copy(update={"id": "y"}))).refused


async def test_a_new_turn_counts_anew(store: Store) -> None:
    desk = await Desk.open(store, repeats=2)
    for turn in (1, 2):
        for number in range(2):
            assert not (await desk.perform(LOOK.model_copy(update={"id": f"{turn}.{number}"}), turn=turn)).refused


async def test_what_the_policy_denies_is_not_run(store: Store) -> None:
    policy = Policy(rules=(Rule(tool="read_*", action=Action.DENY),))
    desk = await Desk.open(store, policy=policy)
    result = await desk.perform(LOOK)
    assert result.refused and "denies" in result.text
    assert desk.tools.did == []


async def test_the_policy_is_the_one_that_holds_now(desk: Desk) -> None:
    def work(connection: Any) -> None:
        desk.book.alter(connection, "session-1", {"policy": Policy(allow_all=("linux",))}, desk.session.created_at)

    await desk.store.write(work)
    assert (await desk.perform(shell())).text == "did c1"


async def test_asking_is_one_transaction(desk: Desk) -> None:
    with pytest.raises(Undecided) as raised:
        await desk.perform(shell(), wait=False)
    with pytest.raises(Undecided) as again:
        await desk.perform(shell(), wait=False)
    assert raised.value.approval == again.value.approval == await desk.only()
    assert await desk.order() == [READY, REQUIRED, STATE]
    assert (await desk.now()).state is SessionState.WAITING
    approval = raised.value.approval
    assert (approval.type, approval.digest, approval.call_id) == ("call", shell().digest, "c1")
    assert (await desk.told(REQUIRED))[0]["approval"]["id"] == approval.id
    assert desk.tools.did == []


async def test_several_wait_and_are_decided_one_by_one(desk: Desk) -> None:
    calls = [asyncio.create_task(desk.perform(shell(call_id=f"c{number}"))) for number in range(3)]
    await desk.asked(3)
    for count, approval in enumerate(sorted(await desk.pending(), key=lambda each: each.call_id)):
        assert (await desk.now()).state is SessionState.WAITING
        await desk.decide(decision(approval))
        assert (await calls[count]).text == f"did c{count}"
    assert (await desk.now()).state is SessionState.RUNNING
    assert desk.heard == []


async def test_a_runner_that_raises_gives_a_failed_result(store: Store) -> None:
    async def work(call: Call) -> CallResult:
        if call.id == "c1":
            raise RuntimeError("broken")
        raise asyncio.CancelledError

    desk = await Desk.open(store, Tools(work))
    result = await desk.perform(LOOK)
    assert result.failed and "broken" in result.text
    assert (await desk.perform(LOOK.model_copy(update={"id": "c2"}))).failed


async def test_a_cancelled_call_is_ended_and_gets_a_result_when_it_is_abandoned(store: Store) -> None:
    ended = asyncio.Event()

    async def work(call: Call) -> CallResult:
        try:
            return await never(call)
        finally:
            ended.set()

    desk = await Desk.open(store, Tools(work))
    task = asyncio.create_task(desk.perform(LOOK))
    while not desk.tools.did:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
    assert await desk.order() == [READY, RUNNING]
    await desk.calls.abandon("session-1", 1, "by ann")
    result = await desk.perform(LOOK)
    assert result.failed and "cancelled (by ann)" in result.text
    await desk.calls.abandon("session-1", 1, "again")
    assert await desk.order() == [READY, RUNNING, RESULT]
    assert len(desk.tools.did) == 1


async def test_a_call_goes_on_while_anybody_waits_for_it(store: Store) -> None:
    gate = asyncio.Event()

    async def work(call: Call) -> CallResult:
        await gate.wait()
        return said("done")

    desk = await Desk.open(store, Tools(work))
    one, two = (asyncio.create_task(desk.perform(LOOK)) for _ in range(2))
    while not desk.tools.did:
        await asyncio.sleep(0)
    one.cancel()
    await asyncio.wait({one})
    gate.set()
    assert (await two).text == "done"


async def test_whoever_comes_while_a_call_is_broken_off_is_not_broken_off_too(store: Store) -> None:
    ending, go = asyncio.Event(), asyncio.Event()

    async def work(call: Call) -> CallResult:
        try:
            return await never(call)
        finally:
            ending.set()
            await go.wait()

    desk = await Desk.open(store, Tools(work))
    first = asyncio.create_task(desk.perform(shell()))
    await desk.asked()
    await desk.decide(decision(await desk.only()))
    while not desk.tools.did:
        await asyncio.sleep(0)
    first.cancel()
    await ending.wait()
    second = asyncio.create_task(desk.perform(shell()))
    await asyncio.sleep(0)
    go.set()
    assert "may or may not have happened" in (await second).text
    assert len(desk.tools.did) == 1


@pytest.mark.parametrize(("call", "times"), [(LOOK, 2), (Call(id="c1", name="linux_click", arguments={"x": 1}), 1)])
async def test_what_was_under_way_in_another_life_is_repeated_only_if_it_looks(
    store: Store, call: Call, times: int
) -> None:
    desk = await Desk.open(store, Tools(never))
    dead = asyncio.create_task(desk.perform(call))
    while not desk.tools.did:
        await asyncio.sleep(0)
    dead.cancel()
    await asyncio.wait({dead})
    desk.tools.then = None
    result = await (await desk.again()).perform(call)
    assert len(desk.tools.did) == times
    assert result.failed == (times == 1)
    assert ("under way when the server stopped" in result.text) == (times == 1)
    assert await desk.order() == [READY, RUNNING, RESULT]


async def test_what_is_run_is_what_was_recorded(desk: Desk) -> None:
    with pytest.raises(Undecided):
        await desk.perform(shell("make"), wait=False)
    await desk.decide(decision(await desk.only()))
    await desk.perform(shell("rm -rf /"))
    assert desk.tools.did == [shell("make")]


async def test_a_tool_that_is_gone_when_it_is_approved_is_not_run(desk: Desk) -> None:
    with pytest.raises(Undecided):
        await desk.perform(shell(), wait=False)
    await desk.decide(decision(await desk.only()))
    result = await desk.calls.perform(desk.session, 1, shell(), {}, wait=True)
    assert result.refused and "any more" in result.text


async def test_calls_that_nobody_came_to_are_abandoned_too(desk: Desk) -> None:
    await desk.say(LOOK, shell(call_id="c2"), shell(call_id="c3"))
    await desk.perform(LOOK)
    with pytest.raises(Undecided):
        await desk.perform(shell(call_id="c2"), wait=False)
    await desk.calls.withdraw("session-1", "cancelled by ann")
    await desk.calls.abandon("session-1", 1, "by ann")
    for call_id in ("c2", "c3"):
        assert (await desk.perform(shell(call_id=call_id), turn=2)).refused
    assert [call.id for call in desk.tools.did] == ["c1"]
    assert len(await desk.told(RESULT)) == 3
    assert await desk.pending() == []


async def test_abandoning_asks_nobody_any_more(desk: Desk) -> None:
    waiting = asyncio.create_task(desk.perform(shell()))
    await desk.asked()
    await desk.calls.abandon("session-1", 1, "by ann")
    assert (await waiting).refused
    assert await desk.pending() == []


async def test_a_session_that_is_gone_is_no_trouble(desk: Desk) -> None:
    await desk.calls.withdraw("nobody", "deleted")
    await desk.calls.abandon("nobody", 1, "deleted")
    with pytest.raises(SessionNotFound):
        await desk.calls.perform(a_session("nobody"), 1, LOOK, SPECS, wait=True)


async def test_a_row_is_written_once_and_closed_calls_end(desk: Desk) -> None:
    await asyncio.gather(*(desk.perform(LOOK) for _ in range(5)))
    count = select(func.count()).select_from(session_calls)
    assert await desk.store.read(lambda connection: connection.execute(count).scalar_one()) == 1
    await desk.calls.open()
    await desk.calls.close()


# What agent programs carry out themselves

BASH = Call(id="b1", name="Bash", arguments={"command": "make"})
OPTIONS = (Choice(id="once", label="Yes"), Choice(id="never", label="No, never"))


async def consult(desk: Desk, effect: str = "command", **fields: Any) -> Any:
    return await desk.calls.consult(desk.session, 1, BASH, effect=effect, **{"kind": "code"} | fields)


async def test_harmless_calls_of_others_are_allowed_and_settled(desk: Desk) -> None:
    assert (await consult(desk, "none")).allowed
    await desk.calls.settle(desk.session, 1, BASH, said("first"))
    await desk.calls.settle(desk.session, 1, BASH, said("second"))
    assert await desk.order() == [READY, RUNNING, RESULT]
    assert [message.text for message in await desk.book.messages("session-1")] == ["first"]


async def test_a_call_of_others_is_of_the_kind_that_they_say(desk: Desk) -> None:
    task = Call(id="t1", name="task", arguments={})
    assert (await desk.calls.consult(desk.session, 1, task, effect="none")).allowed
    await consult(desk, "none")
    await desk.calls.settle(desk.session, 1, Call(id="t2", name="task", arguments={}), said("done"))
    await desk.calls.settle(desk.session, 1, Call(id="b2", name="Bash", arguments={}), said("done"), kind="code")
    kinds = {each["call"]["id"]: each.get("kind") for each in await desk.told(READY)}
    assert kinds == {"t1": None, "b1": "code", "t2": None, "b2": "code"}


async def test_calls_that_nobody_asked_about_are_written_down(desk: Desk) -> None:
    await desk.calls.settle(desk.session, 1, BASH, said("done"))
    assert await desk.order() == [READY, RUNNING, RESULT]
    assert (await consult(desk)).allowed


async def test_what_is_denied_to_others_has_its_result_at_once(store: Store) -> None:
    desk = await Desk.open(store, policy=Policy(rules=(Rule(tool="Bash", action=Action.DENY),)))
    verdict = await consult(desk)
    assert not verdict.allowed and "denies" in str(verdict.reason)
    assert await desk.order() == [READY, RESULT]
    assert await consult(await desk.again()) == verdict


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
    desk: Desk, given: dict[str, Any], expected: dict[str, Any]
) -> None:
    waiting = asyncio.create_task(consult(desk, question="May I?", choices=OPTIONS))
    await desk.asked()
    approval = await desk.only()
    assert (approval.question, approval.choices, approval.actions) == ("May I?", OPTIONS, ("approve", "reject"))
    await desk.decide(decision(approval, **given))
    verdict = await waiting
    assert {name: getattr(verdict, name) for name in expected} == expected
    assert await consult(await desk.again(), question="May I?", choices=OPTIONS) == verdict
    assert len(await desk.told(RUNNING)) == int(verdict.allowed)
    assert desk.tools.did == []


async def test_a_call_that_others_settle_before_the_decision_needs_none(desk: Desk) -> None:
    waiting = asyncio.create_task(consult(desk))
    await desk.asked()
    await desk.calls.settle(desk.session, 1, BASH, CallResult(failed=True))
    assert not (await waiting).allowed
    assert await desk.pending() == []
    assert (await desk.now()).state is SessionState.RUNNING
