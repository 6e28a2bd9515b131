"""Runs the calls of agents, each once, with what the policy and persons say of it.

A call is in the ledger before anything is done about it, and whatever becomes of it is in one transaction with the
events that tell of it. So it does not matter where a server dies: what was decided stays decided, what has a result
keeps it, and what was under way is not done twice.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from operator import itemgetter
from typing import TypeAlias, TypeVar

import structlog

from paddock.agents.approvals import expired, failure, refusal, resolve, verdict
from paddock.agents.call_summary import summarized
from paddock.agents.engines.base import ToolSpec, Undecided, Verdict
from paddock.agents.judging import Judging
from paddock.config.schema import Config
from paddock.errors import InvalidInput, PaddockError
from paddock.events.log import EventLog
from paddock.model.sessions import (
    Approval,
    ApprovalState,
    Call,
    CallRecord,
    CallResult,
    CallState,
    Choice,
    Decision,
    Session,
    TextContent,
)
from paddock.store.calls import CallStore, Told
from paddock.store.database import Store, Work

T = TypeVar("T")
Key: TypeAlias = tuple[str, str]
Approvals: TypeAlias = list[Approval]
Aside: TypeAlias = Callable[[str], AbstractAsyncContextManager[None]]
Runner: TypeAlias = Callable[[Session, int, Call, ToolSpec], Awaitable[CallResult]]

LOST = (
    "This call was under way when the server stopped or the turn was interrupted. It may or may not have happened; "
    "look before you repeat it."
)
UNDECIDED = "Nobody has decided about this call, and it was not run."
MOST_DECISIONS = 100
MOST_LISTED = 1000
_LOOK_AGAIN = 60.0
"""Seconds after which whoever waits looks by themselves, whatever they were told."""
_AFTER_FAILURE = 5.0
_GRACE = 10.0
log = structlog.get_logger()


@dataclass
class _Shared:
    """A call that this server works on, for all who want its result."""

    task: asyncio.Task[CallResult | Approval]
    callers: int = 0
    given_up: bool = False


class Calls:
    """The calls of all sessions.

    `on_decided` is told the session of a decision that nobody here waits for; `aside` is entered by those who wait.
    """

    def __init__(self, store: Store, events: EventLog, config: Config, run: Runner) -> None:
        self.on_decided: Callable[[str], None] = lambda session_id: None
        self.aside: Aside = lambda session_id: nullcontext()
        self._calls = CallStore(store)
        self._events = events
        self._chat = config.chat
        self._judging = Judging(config.chat)
        self._run = run
        self._shared: dict[Key, _Shared] = {}
        self._listeners: dict[Key, set[asyncio.Event]] = {}
        self._deciding: set[asyncio.Task[Approvals]] = set()
        self._asked = asyncio.Event()
        self._expiring: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """From now on, what nobody decides in time is refused."""
        self._expiring = asyncio.create_task(self._expire_in_time(), name="approvals-expire")

    async def close(self) -> None:
        tasks: list[asyncio.Task[object]] = [shared.task for shared in self._shared.values()]
        if self._expiring is not None:
            tasks.append(self._expiring)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._deciding, return_exceptions=True)
        self._expiring = None

    async def perform(
        self, session: Session, turn: int, call: Call, specs: Mapping[str, ToolSpec], *, wait: bool
    ) -> CallResult:
        """Run a call, or say what came of it. Raises `Undecided` where a person has to decide and nobody waits."""
        key = (session.id, call.id)
        if not wait:
            outcome = await self._carried_out(key, session, turn, call, specs)
            if isinstance(outcome, Approval):
                raise Undecided(outcome)
            return outcome
        with self._listening(key) as news:
            while True:
                outcome = await self._carried_out(key, session, turn, call, specs)
                if isinstance(outcome, CallResult):
                    return outcome
                async with self.aside(session.id):
                    await _heard(news)

    async def consult(
        self,
        session: Session,
        turn: int,
        call: Call,
        *,
        question: str = "",
        choices: Sequence[Choice] = (),
        effect: str = "other",
        kind: str | None = None,
    ) -> Verdict:
        """Whether a call may be run that somebody else carries out."""
        judge = self._judging.of_other(turn, call, kind, effect, question, choices)
        entering = self._calls.entering(session.id, turn, _clean(call), kind, call.name, judge, 0)
        with self._listening((session.id, call.id)) as news:
            while True:
                entry = await self._together(entering)
                if entry.approval is None or entry.approval.state is not ApprovalState.PENDING:
                    return verdict(entry)
                self._asked.set()
                async with self.aside(session.id):
                    await _heard(news)

    async def settle(
        self, session: Session, turn: int, call: Call, result: CallResult, *, kind: str | None = None
    ) -> None:
        """Keep the result of a call that somebody else has carried out. The first one counts."""
        settling = self._calls.settling(session.id, turn, _clean(call), kind, _cleaned(result))
        await self._decided(settling)

    async def decide(self, tenant: str, session_id: str, decisions: Sequence[Decision], by: str) -> Approvals:
        """Decide what waits in a session, all of it or nothing.

        Raises `InvalidInput` for what makes no sense, `NotFound`, and `Conflict` for what is decided already, has
        expired, or is not what was shown.
        """
        if not 0 < len(decisions) <= MOST_DECISIONS:
            raise InvalidInput(f"give 1 to {MOST_DECISIONS} decisions at a time")
        for approval_id, count in Counter(decision.approval for decision in decisions).items():
            if count > 1:
                raise InvalidInput(f"there are {count} decisions about {approval_id[:80]!r}; give one")
        resolving = partial(resolve, by=by, now=datetime.now(UTC))
        return await self._decided(self._calls.deciding(tenant, session_id, decisions, resolving))

    async def pending(self, session_id: str) -> Approvals:
        """What waits for a person in a session, oldest first."""
        return [summarized(each) for each in await self._calls.pending(session_id)]

    async def withdraw(self, session_id: str, reason: str) -> None:
        """Ask nobody any more: what is pending is not run. The session's state is left to whoever ends its turn."""
        result = refusal(f"Nobody has to decide about this call any more ({reason}), and it was not run.")
        await self._decided(self._calls.withdrawing(session_id, reason, result), alone=False)

    async def expire(self) -> list[str]:
        """Refuse what nobody has decided in time, and say in which sessions."""
        over = await self._decided(self._calls.expiring(datetime.now(UTC), expired))
        return list(dict.fromkeys(approval.session for approval in over))

    async def abandon(self, session_id: str, turn: int, reason: str) -> None:
        """Give calls of a turn that have no result one that says so."""

        def outcome(record: CallRecord) -> CallResult:
            if record.state is CallState.RUNNING:
                return failure(
                    f"This call was under way when it was cancelled ({reason}). It may have happened in part."
                )
            return refusal(f"This call was cancelled ({reason}) before it was run.")

        await self._decided(self._calls.abandoning(session_id, turn, reason, outcome), alone=False)

    async def list(
        self,
        tenant: str | None,
        *,
        session: str | None = None,
        state: ApprovalState | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> Approvals:
        """What was asked of persons and what they decided, newest first; `before` is the last id that is known."""
        found = await self._calls.approvals(tenant, session, state, before, max(1, min(limit, MOST_LISTED)))
        return [summarized(each) for each in found]

    async def _carried_out(
        self, key: Key, session: Session, turn: int, call: Call, specs: Mapping[str, ToolSpec]
    ) -> CallResult | Approval:
        """What comes of a call, worked on once however many ask: its result, or what a person has to decide."""
        while True:
            shared = self._shared.get(key)
            mine = shared is None
            if shared is None:
                task = asyncio.create_task(self._carry_out(session, turn, call, specs), name=f"call-{call.id}")
                shared = self._shared[key] = _Shared(task)
            elif shared.given_up:
                await asyncio.wait({shared.task}, timeout=_GRACE)
                self._forget(key, shared)
                continue
            shared.callers += 1
            try:
                outcome = await asyncio.shield(shared.task)
            finally:
                shared.callers -= 1
                if not shared.callers:
                    await _give_up(shared)
                self._forget(key, shared)
            # What others have read may be older than what this caller was told.
            if mine or isinstance(outcome, CallResult):
                return outcome

    async def _carry_out(
        self, session: Session, turn: int, call: Call, specs: Mapping[str, ToolSpec]
    ) -> CallResult | Approval:
        spec = specs.get(call.name)
        kind, tool = (None, call.name) if spec is None else (spec.kind, spec.tool)
        judge = self._judging.of_tool(turn, call, specs)
        entering = self._calls.entering(session.id, turn, _clean(call), kind, tool, judge, self._chat.repeats)
        entry = await self._together(entering)
        record, approval = entry.record, entry.approval
        if record.result is not None:
            return record.result
        if approval is not None and approval.state is ApprovalState.PENDING:
            self._asked.set()
            return summarized(approval)
        # The arguments that are run are those of the ledger, whatever is asked for now by the same id.
        edited = {"arguments": approval.edited} if approval and approval.edited is not None else {}
        whole = record.call.model_copy(update=edited)
        spec = specs.get(whole.name)
        if record.state is CallState.ASKED:
            result = refusal(UNDECIDED)
        elif entry.taken and spec is None:
            result = refusal(f"The session has no tool {whole.name} any more, so it was not run.")
        elif spec is None or not (entry.taken or spec.effect == "none"):
            result = failure(LOST)
        else:
            result = await self._ran(session, turn, whole, spec)
        return await self._together(self._calls.finishing(session.id, call.id, _cleaned(result)))

    def _forget(self, key: Key, shared: _Shared) -> None:
        if shared.task.done() and self._shared.get(key) is shared:
            del self._shared[key]

    async def _ran(self, session: Session, turn: int, call: Call, spec: ToolSpec) -> CallResult:
        try:
            return await self._run(session, turn, call, spec)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return failure(f"{spec.name} was broken off.")
        except Exception as error:  # a runner answers for its failures; the turn shall not end by one that did not
            log.exception("a tool failed", session=session.id, call=call.id, tool=spec.name)
            return failure(f"{spec.name} failed: {str(error) or type(error).__name__}")

    async def _together(self, work: Work[Told[T]]) -> T:
        value, _ = await self._events.together(work, itemgetter(1))
        return value

    async def _decided(self, work: Work[Told[Approvals]], *, alone: bool = True) -> Approvals:
        """Decide something, and let those know who wait for it, even if whoever decides does not stay to see it."""

        async def whole() -> Approvals:
            decided = await self._together(work)
            self._tell_listeners(decided, alone=alone)
            return decided

        task = asyncio.create_task(whole(), name="approvals-decide")
        self._deciding.add(task)
        task.add_done_callback(self._deciding.discard)
        return await asyncio.shield(task)

    @contextmanager
    def _listening(self, key: Key) -> Iterator[asyncio.Event]:
        """Hear of what is decided about a call. Begun before the call is looked at, so that nothing is missed."""
        news = asyncio.Event()
        self._listeners.setdefault(key, set()).add(news)
        try:
            yield news
        finally:
            self._listeners[key].discard(news)
            if not self._listeners[key]:
                del self._listeners[key]

    def _tell_listeners(self, decided: Iterable[Approval], *, alone: bool = True) -> None:
        """Wake who waits; with `alone` tell `on_decided` of sessions where nobody does."""
        unheard: dict[str, None] = {}
        for approval in decided:
            listeners = self._listeners.get((approval.session, approval.call_id), ())
            for news in listeners:
                news.set()
            if not listeners:
                unheard[approval.session] = None
        for session_id in unheard if alone else ():
            self.on_decided(session_id)

    async def _expire_in_time(self) -> None:
        while True:
            self._asked.clear()
            try:
                due = await self._calls.next_expiry()
                left = _LOOK_AGAIN if due is None else (due - datetime.now(UTC)).total_seconds()
                if left <= 0:
                    await self.expire()
                    continue
            except PaddockError as error:
                log.warning("approvals cannot be looked after", error=str(error))
                left = _AFTER_FAILURE
            await _heard(self._asked, min(left, _LOOK_AGAIN))


async def _heard(news: asyncio.Event, seconds: float = _LOOK_AGAIN) -> None:
    """Wait for news, but not for ever."""
    try:
        async with asyncio.timeout(seconds):
            await news.wait()
    except TimeoutError:
        pass
    news.clear()


async def _give_up(shared: _Shared) -> None:
    """Nobody wants what a task is at any more."""
    if not shared.task.done():
        shared.given_up = True
        shared.task.cancel()
        await asyncio.wait({shared.task}, timeout=_GRACE)


def _clean(call: Call) -> Call:
    return call if call.malformed is None else call.model_copy(update={"malformed": _storable(call.malformed)})


def _cleaned(result: CallResult) -> CallResult:
    """A result whose text every database and every client can take."""
    parts = (
        TextContent(text=_storable(part.text)) if isinstance(part, TextContent) else part for part in result.content
    )
    return result.model_copy(update={"content": tuple(parts)})


def _storable(text: str) -> str:
    return text.encode(errors="replace").decode()
