"""A call is run once, whoever decides how often, and wherever the server dies."""

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
from tests.unit.agents.desk import SPECS, Desk, Tools, decision, said, shell

from paddock.agents.calls import Calls
from paddock.agents.engines.base import Undecided
from paddock.config.schema import Config
from paddock.errors import Conflict
from paddock.events.log import EventLog
from paddock.model.events import EventType
from paddock.model.sessions import Approval, ApprovalState, Call, CallResult, Session, SessionState
from paddock.store.database import Store, Work
from paddock.store.events import EventStore, Happening

T = TypeVar("T")
LIFETIMES = 12


class Killed(BaseException):
    """The server is no more."""


class Fate:
    """When a server dies: at its n-th deed, before or after it is done. Deeds are transactions and what tools do."""

    def __init__(self, deed: int, *, after: bool, pauses: Sequence[int] = ()) -> None:
        self.left = deed
        self.after = after
        self.dead = False
        self._pauses = list(pauses)

    async def pause(self) -> None:
        for _ in range(self._pauses.pop() if self._pauses else 0):
            await asyncio.sleep(0)

    def before_deed(self) -> None:
        self.check()
        self.left -= 1
        if self.left == 0 and not self.after:
            self.dead = True
        self.check()

    def after_deed(self) -> None:
        if self.left == 0 and self.after:
            self.dead = True
        self.check()

    def check(self) -> None:
        if self.dead:
            raise Killed


class MortalLog(EventLog):
    """A log of a server that dies: from then on nothing is written, and nobody hears of what was."""

    fate: Fate

    async def together(
        self, work: Work[T], tell: Callable[[T], Sequence[Happening]], *, erases: str | None = None
    ) -> T:
        await self.fate.pause()
        self.fate.before_deed()
        result = await super().together(work, tell, erases=erases)
        self.fate.after_deed()
        return result


class Life:
    """One life of a server: agents that want their calls done, and people who decide."""

    def __init__(self, desk: Desk, log: MortalLog, fate: Fate) -> None:
        self.desk = desk
        self.fate = fate
        self.calls = Calls(desk.store, log, Config(), self._run)
        self.decided: list[tuple[str, ApprovalState]] = []

    async def _run(self, session: Session, turn: int, call: Call, spec: Any) -> CallResult:
        self.fate.before_deed()
        self.desk.tools.did.append(call)
        await asyncio.sleep(0)
        self.fate.after_deed()
        return said(f"did {call.id} with {call.arguments['command']}")

    async def agent(self, call: Call, wait: bool) -> CallResult | None:
        try:
            return await self.calls.perform(self.desk.session, 1, call, SPECS, wait=wait)
        except Undecided:
            return None

    async def person(self, name: str, action: Any, count: int) -> None:
        """Clicks twice on all that is asked, also on what somebody else was faster with."""
        clicked: set[str] = set()
        while len(clicked) < count:
            self.fate.check()
            for approval in await self.calls.list("t"):
                if approval.id not in clicked:
                    clicked.add(approval.id)
                    await asyncio.gather(self._click(approval, action, name), self._click(approval, action, name))

    async def _click(self, approval: Approval, action: Any, name: str) -> None:
        arguments = {"command": "edited"} if action == "edit" else None
        try:
            chosen = decision(approval, action, arguments=arguments)
            decided = await self.calls.decide("t", "session-1", [chosen], name)
            self.decided += [(each.call_id, each.state) for each in decided]
        except Conflict:
            pass


async def live(desk: Desk, fate: Fate, work: Callable[[Life], Sequence[Any]]) -> tuple[Life, list[Any]]:
    """Live until all is done or fate strikes. Whatever the dead had in hand is gone."""
    log = MortalLog(EventStore(desk.store), (await EventLog.open(desk.store))._window)
    log.fate = fate
    life = Life(desk, log, fate)
    tasks = [asyncio.create_task(each) for each in work(life)]
    async with asyncio.timeout(30):
        while tasks:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            if fate.dead or all(task.done() for task in tasks):
                break
    for task in [*tasks, *(shared.task for shared in life.calls._shared.values())]:
        task.cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    return life, outcomes


async def check(desk: Desk, calls: Sequence[Call], decided: Sequence[tuple[str, ApprovalState]]) -> None:
    """What must be true of every story."""
    results = {
        data["call_id"]: CallResult.model_validate(data["result"]) for data in await desk.told(EventType.CALL_RESULT)
    }
    kinds = EventType.CALL_READY, EventType.CALL_RUNNING, EventType.CALL_RESULT, EventType.APPROVAL_REQUIRED
    for kind in (*kinds, EventType.APPROVAL_DECIDED):
        told = [
            data.get("call_id") or (data.get("call") or data["approval"]).get("id") for data in await desk.told(kind)
        ]
        assert len(told) == len(set(told)), f"{kind} was told twice"
    assert len(decided) == len({call_id for call_id, _ in decided}), "a decision counted twice"
    messages = [message.call_id for message in await desk.book.messages("session-1")]
    assert sorted(map(str, messages)) == sorted(call.id for call in calls)
    approvals = {approval.call_id: approval for approval in await desk.calls.list("t")}
    for call in calls:
        ran = [each for each in desk.tools.did if each.id == call.id]
        result, approval = results[call.id], approvals[call.id]
        assert len(ran) <= 1, "it was run twice"
        if "did" in result.text:
            assert len(ran) == 1
            assert approval.state in (ApprovalState.APPROVED, ApprovalState.EDITED)
            assert ran[0].arguments == (approval.edited or call.arguments)
        elif approval.state in (ApprovalState.APPROVED, ApprovalState.EDITED):
            assert "may or may not have happened" in result.text
        else:
            assert result.refused and ran == []
        # A decision that was acknowledged is the one that holds.
        assert all(state is approval.state for call_id, state in decided if call_id == call.id)
    assert (await desk.now()).state is SessionState.RUNNING


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with nothing in it."""
    path = tmp_path_factory.mktemp("empty") / "p.db"

    async def make() -> None:
        async with await Store.open(path):
            pass

    asyncio.run(make())
    return path


def tell_story(empty: Path, fates: Sequence[Fate], count: int, waits: Sequence[bool], second: str) -> None:
    async def story(path: Path) -> None:
        async with await Store.open(path / "p.db") as store:
            desk = await Desk.open(store, Tools())
            calls = [shell(f"make {number}", f"c{number}") for number in range(count)]
            decided: list[tuple[str, ApprovalState]] = []

            def work(life: Life) -> Sequence[Any]:
                agents = [life.agent(call, wait) for call in calls for wait in waits]
                return [*agents, life.person("ann", "approve", count), life.person("bob", second, count)]

            for fate in fates:
                life, _ = await live(desk, fate, work)
                decided += life.decided
            # The last life is long enough for all that is left.
            last = Fate(-1, after=False)

            def rest(life: Life) -> Sequence[Any]:
                return [*(life.agent(call, True) for call in calls), life.person("zoe", "approve", count)]

            life, outcomes = await live(desk, last, rest)
            decided += life.decided
            stuck = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
            assert not stuck, stuck
            await check(desk, calls, decided)

    with TemporaryDirectory() as directory:
        shutil.copy(empty, directory)
        asyncio.run(story(Path(directory)))


PAUSES = st.lists(st.integers(0, 6), max_size=12)
FATES = st.lists(st.builds(Fate, st.integers(1, 9), after=st.booleans(), pauses=PAUSES), max_size=3)


@settings(max_examples=40)
@given(
    fates=FATES,
    count=st.integers(1, 2),
    waits=st.sampled_from([(True,), (False,), (True, True), (False, True)]),
    second=st.sampled_from(["approve", "reject", "edit"]),
)
def test_whatever_happens_it_is_run_once(
    empty: Path, fates: list[Fate], count: int, waits: Sequence[bool], second: str
) -> None:
    tell_story(empty, fates, count, waits, second)


def test_killed_at_every_single_deed(empty: Path) -> None:
    for deed in range(1, LIFETIMES):
        for after in (False, True):
            tell_story(empty, [Fate(deed, after=after)], 1, (True,), "edit")
