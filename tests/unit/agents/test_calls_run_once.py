"""A call runs once, regardless of repeated decisions and of crashes of the server."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.agents.approvals.tool_call_service import ToolCallService
from paddock.agents.engines.base import ApprovalNeeded
from paddock.config.schema import Config
from paddock.errors import Conflict
from paddock.events.event_log import EventLog
from paddock.model.events import EventType
from paddock.model.sessions import Approval, ApprovalState, CallResult, Session, SessionState, ToolCall
from paddock.store.database import Store, Work
from paddock.store.event_store import EventStore, NewEvent
from tests.unit.agents.call_harness import (
    SPECS,
    CallHarness,
    RecordingTools,
    make_decision,
    shell_call,
    text_tool_result,
)

T = TypeVar("T")
MAX_ACTIONS = 12


class Killed(BaseException):
    """The server was killed."""


class KillPlan:
    """Kills the server before or after its n-th action; actions are transactions and tool runs."""

    def __init__(self, actions_left: int, *, after: bool, pauses: Sequence[int] = ()) -> None:
        self.actions_left = actions_left
        self.after = after
        self.killed = False
        self._pauses = list(pauses)

    async def pause(self) -> None:
        for _ in range(self._pauses.pop() if self._pauses else 0):
            await asyncio.sleep(0)

    def before_action(self) -> None:
        self.check()
        self.actions_left -= 1
        if self.actions_left == 0 and not self.after:
            self.killed = True
        self.check()

    def after_action(self) -> None:
        if self.actions_left == 0 and self.after:
            self.killed = True
        self.check()

    def check(self) -> None:
        if self.killed:
            raise Killed


class KillableEventLog(EventLog):
    """Event log of a server that is killed: afterwards nothing is written or published."""

    kill_plan: KillPlan

    async def write_with_events(
        self, work: Work[T], make_events: Callable[[T], Sequence[NewEvent]], *, erased_stream: str | None = None
    ) -> T:
        await self.kill_plan.pause()
        self.kill_plan.before_action()
        result = await super().write_with_events(work, make_events, erased_stream=erased_stream)
        self.kill_plan.after_action()
        return result


class ServerLife:
    """One server until it is killed, with agents that make calls and users that approve them."""

    def __init__(self, harness: CallHarness, log: KillableEventLog, kill_plan: KillPlan) -> None:
        self.harness = harness
        self.kill_plan = kill_plan
        self.calls = ToolCallService(harness.store, log, Config(), self._run)
        self.decided: list[tuple[str, ApprovalState]] = []

    async def _run(self, session: Session, turn: int, call: ToolCall, spec: Any) -> CallResult:
        self.kill_plan.before_action()
        self.harness.tools.calls_run.append(call)
        await asyncio.sleep(0)
        self.kill_plan.after_action()
        return text_tool_result(f"did {call.id} with {call.arguments['command']}")

    async def agent(self, call: ToolCall, wait: bool) -> CallResult | None:
        try:
            return await self.calls.run_call(self.harness.session, 1, call, SPECS, wait=wait)
        except ApprovalNeeded:
            return None

    async def person(self, name: str, action: Any, count: int) -> None:
        """Decide every approval twice, even if another person was faster."""
        decided_ids: set[str] = set()
        while len(decided_ids) < count:
            self.kill_plan.check()
            for approval in await self.calls.list_approvals("t"):
                if approval.id not in decided_ids:
                    decided_ids.add(approval.id)
                    await asyncio.gather(self._decide(approval, action, name), self._decide(approval, action, name))

    async def _decide(self, approval: Approval, action: Any, name: str) -> None:
        arguments = {"command": "edited"} if action == "edit" else None
        try:
            decision = make_decision(approval, action, arguments=arguments)
            decided = await self.calls.decide_approvals("t", "session-1", [decision], name)
            self.decided += [(each.call_id, each.state) for each in decided]
        except Conflict:
            pass


async def run_server_life(
    harness: CallHarness, kill_plan: KillPlan, work: Callable[[ServerLife], Sequence[Any]]
) -> tuple[ServerLife, list[Any]]:
    """Run until all work is done or the server is killed; running tasks are dropped."""
    log = KillableEventLog(EventStore(harness.store), (await EventLog.open(harness.store))._recent)
    log.kill_plan = kill_plan
    server_life = ServerLife(harness, log, kill_plan)
    tasks = [asyncio.create_task(each) for each in work(server_life)]
    async with asyncio.timeout(30):
        while tasks:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            if kill_plan.killed or all(task.done() for task in tasks):
                break
    for task in [*tasks, *(shared.task for shared in server_life.calls._shared_calls.values())]:
        task.cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    return server_life, outcomes


async def check(harness: CallHarness, calls: Sequence[ToolCall], decided: Sequence[tuple[str, ApprovalState]]) -> None:
    """Check the invariants of every scenario."""
    results = {
        data["call_id"]: CallResult.model_validate(data["result"])
        for data in await harness.events_of(EventType.CALL_RESULT)
    }
    kinds = EventType.CALL_READY, EventType.CALL_RUNNING, EventType.CALL_RESULT, EventType.APPROVAL_REQUIRED
    for kind in (*kinds, EventType.APPROVAL_DECIDED):
        ids = [
            data.get("call_id") or (data.get("call") or data["approval"]).get("id")
            for data in await harness.events_of(kind)
        ]
        assert len(ids) == len(set(ids)), f"{kind} was told twice"
    assert len(decided) == len({call_id for call_id, _ in decided}), "a decision counted twice"
    messages = [message.call_id for message in await harness.session_store.list_messages("session-1")]
    assert sorted(map(str, messages)) == sorted(call.id for call in calls)
    approvals = {approval.call_id: approval for approval in await harness.calls.list_approvals("t")}
    for call in calls:
        runs = [each for each in harness.tools.calls_run if each.id == call.id]
        result, approval = results[call.id], approvals[call.id]
        assert len(runs) <= 1, "it was run twice"
        if "did" in result.text:
            assert len(runs) == 1
            assert approval.state in (ApprovalState.APPROVED, ApprovalState.EDITED)
            assert runs[0].arguments == (approval.edited or call.arguments)
        elif approval.state in (ApprovalState.APPROVED, ApprovalState.EDITED):
            assert "may or may not have happened" in result.text
        else:
            assert result.refused and runs == []
        # A decision that was acknowledged is the one that holds.
        assert all(state is approval.state for call_id, state in decided if call_id == call.id)
    assert (await harness.load_session()).state is SessionState.RUNNING


@pytest.fixture(scope="module")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty database."""
    path = tmp_path_factory.mktemp("empty") / "p.db"

    async def make() -> None:
        async with await Store.open(path):
            pass

    asyncio.run(make())
    return path


def run_scenario(
    empty_database: Path, kill_plans: Sequence[KillPlan], count: int, waits: Sequence[bool], second_action: str
) -> None:
    async def run_in(path: Path) -> None:
        async with await Store.open(path / "p.db") as store:
            harness = await CallHarness.open(store, RecordingTools())
            calls = [shell_call(f"make {number}", f"c{number}") for number in range(count)]
            decided: list[tuple[str, ApprovalState]] = []

            def work(server_life: ServerLife) -> Sequence[Any]:
                agents = [server_life.agent(call, wait) for call in calls for wait in waits]
                return [
                    *agents,
                    server_life.person("ann", "approve", count),
                    server_life.person("bob", second_action, count),
                ]

            for kill_plan in kill_plans:
                server_life, _ = await run_server_life(harness, kill_plan, work)
                decided += server_life.decided
            # The last life is long enough for all that is left.
            last_plan = KillPlan(-1, after=False)

            def finish(server_life: ServerLife) -> Sequence[Any]:
                return [*(server_life.agent(call, True) for call in calls), server_life.person("zoe", "approve", count)]

            server_life, outcomes = await run_server_life(harness, last_plan, finish)
            decided += server_life.decided
            errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
            assert not errors, errors
            await check(harness, calls, decided)

    with TemporaryDirectory() as directory:
        shutil.copy(empty_database, directory)
        asyncio.run(run_in(Path(directory)))


PAUSES = st.lists(st.integers(0, 6), max_size=12)
KILL_PLANS = st.lists(st.builds(KillPlan, st.integers(1, 9), after=st.booleans(), pauses=PAUSES), max_size=3)


@settings(max_examples=40)
@given(
    kill_plans=KILL_PLANS,
    count=st.integers(1, 2),
    waits=st.sampled_from([(True,), (False,), (True, True), (False, True)]),
    second_action=st.sampled_from(["approve", "reject", "edit"]),
)
def test_call_runs_once_despite_crashes_and_repeated_decisions(
    empty_database: Path, kill_plans: list[KillPlan], count: int, waits: Sequence[bool], second_action: str
) -> None:
    run_scenario(empty_database, kill_plans, count, waits, second_action)


def test_call_runs_once_when_killed_at_any_action(empty_database: Path) -> None:
    for action in range(1, MAX_ACTIONS):
        for after in (False, True):
            run_scenario(empty_database, [KillPlan(action, after=after)], 1, (True,), "edit")
