"""Runs each tool call of an agent once, subject to the policy and to approvals.

A call is recorded before it runs, and every change of it is stored in one transaction with its events. A server may
therefore stop at any point: decisions and results are kept, and a call that was running is not run twice.
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

from paddock.agents.approvals.approval_decisions import (
    apply_approval_decision,
    expired_call_result,
    external_call_verdict,
    failed_call_result,
    refused_call_result,
)
from paddock.agents.approvals.call_policy import CallPolicy
from paddock.agents.approvals.call_summary import add_call_summary
from paddock.agents.engines.base import ApprovalNeeded, CallVerdict, ToolSpec
from paddock.config.schema import Config
from paddock.errors import InvalidInput, PaddockError
from paddock.events.event_log import EventLog
from paddock.model.sessions import (
    Approval,
    ApprovalDecision,
    ApprovalState,
    CallResult,
    CallState,
    LedgerCall,
    QuestionChoice,
    Session,
    TextContent,
    ToolCall,
)
from paddock.store.chat_sessions.call_store import CallStore, WithEvents
from paddock.store.database import Store, Work

T = TypeVar("T")
CallKey: TypeAlias = tuple[str, str]
Approvals: TypeAlias = list[Approval]
YieldSlot: TypeAlias = Callable[[str], AbstractAsyncContextManager[None]]
RunTool: TypeAlias = Callable[[Session, int, ToolCall, ToolSpec], Awaitable[CallResult]]

LOST_CALL_MESSAGE = (
    "This call was running when the server stopped or the turn was interrupted. It may or may not have happened; "
    "check before you repeat it."
)
UNDECIDED_MESSAGE = "This call was not approved, and it was not run."
MAX_DECISIONS = 100
MAX_LISTED = 1000
_CHECK_INTERVAL = 60.0
"""Seconds after which waiters check the store without a notification."""
_RETRY_DELAY = 5.0
_CANCEL_TIMEOUT = 10.0
log = structlog.get_logger()


@dataclass
class _SharedCall:
    """A call in progress, shared by all callers that wait for its result."""

    task: asyncio.Task[CallResult | Approval]
    callers: int = 0
    cancelled: bool = False


class ToolCallService:
    """The tool calls of all sessions.

    `on_decided` is called with the session of a decision that no caller waits for; callers wait within
    `yield_slot`.
    """

    def __init__(self, store: Store, events: EventLog, config: Config, run: RunTool) -> None:
        self.on_decided: Callable[[str], None] = lambda session_id: None
        self.yield_slot: YieldSlot = lambda session_id: nullcontext()
        self._call_store = CallStore(store)
        self._events = events
        self._chat = config.chat
        self._call_policy = CallPolicy(config.chat)
        self._run_function = run
        self._shared_calls: dict[CallKey, _SharedCall] = {}
        self._listeners: dict[CallKey, set[asyncio.Event]] = {}
        self._decision_tasks: set[asyncio.Task[Approvals]] = set()
        self._approval_created = asyncio.Event()
        self._expiry_task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Start expiring approvals that are not decided in time."""
        self._expiry_task = asyncio.create_task(self._expire_loop(), name="approvals-expire")

    async def close(self) -> None:
        tasks: list[asyncio.Task[object]] = [shared.task for shared in self._shared_calls.values()]
        if self._expiry_task is not None:
            tasks.append(self._expiry_task)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._decision_tasks, return_exceptions=True)
        self._expiry_task = None

    async def run_call(
        self, session: Session, turn: int, call: ToolCall, specs: Mapping[str, ToolSpec], *, wait: bool
    ) -> CallResult:
        """Run a call, or return its recorded result. Raises `ApprovalNeeded` if approval is pending and not `wait`."""
        key = (session.id, call.id)
        if not wait:
            outcome = await self._run_shared(key, session, turn, call, specs)
            if isinstance(outcome, Approval):
                raise ApprovalNeeded(outcome)
            return outcome
        with self._subscribe(key) as notification:
            while True:
                outcome = await self._run_shared(key, session, turn, call, specs)
                if isinstance(outcome, CallResult):
                    return outcome
                async with self.yield_slot(session.id):
                    await _wait_for_event(notification)

    async def authorize_call(
        self,
        session: Session,
        turn: int,
        call: ToolCall,
        *,
        question: str = "",
        choices: Sequence[QuestionChoice] = (),
        effect: str = "other",
        kind: str | None = None,
    ) -> CallVerdict:
        """Return whether an agent program may run a call itself; waits for approval if needed."""
        judge = self._call_policy.judge_external_call(turn, call, kind, effect, question, choices)
        work = self._call_store.enter_call_work(session.id, turn, _storable_call(call), kind, call.name, judge, 0)
        with self._subscribe((session.id, call.id)) as notification:
            while True:
                ledger_call = await self._write(work)
                if ledger_call.approval is None or ledger_call.approval.state is not ApprovalState.PENDING:
                    return external_call_verdict(ledger_call)
                self._approval_created.set()
                async with self.yield_slot(session.id):
                    await _wait_for_event(notification)

    async def record_result(
        self, session: Session, turn: int, call: ToolCall, result: CallResult, *, kind: str | None = None
    ) -> None:
        """Record the result of a call that an agent program ran itself. The first result counts."""
        work = self._call_store.settle_call_work(session.id, turn, _storable_call(call), kind, _storable_result(result))
        await self._store_decisions(work)

    async def decide_approvals(
        self, tenant: str, session_id: str, decisions: Sequence[ApprovalDecision], by: str
    ) -> Approvals:
        """Decide pending approvals of a session, all or none.

        Raises `InvalidInput` for invalid decisions, `NotFound`, and `Conflict` for approvals that are decided already,
        expired, or changed since they were shown.
        """
        if not 0 < len(decisions) <= MAX_DECISIONS:
            raise InvalidInput(f"give 1 to {MAX_DECISIONS} decisions at a time")
        for approval_id, count in Counter(decision.approval for decision in decisions).items():
            if count > 1:
                raise InvalidInput(f"there are {count} decisions about {approval_id[:80]!r}; give only one")
        resolve = partial(apply_approval_decision, by=by, now=datetime.now(UTC))
        return await self._store_decisions(
            self._call_store.decide_approvals_work(tenant, session_id, decisions, resolve)
        )

    async def list_pending_approvals(self, session_id: str) -> Approvals:
        """List pending approvals of a session, oldest first."""
        return [add_call_summary(each) for each in await self._call_store.list_pending_approvals(session_id)]

    async def withdraw_approvals(self, session_id: str, reason: str) -> None:
        """Withdraw pending approvals, so that their calls are not run. The caller changes the session's state."""
        result = refused_call_result(f"This call no longer needs a decision ({reason}), and it was not run.")
        await self._store_decisions(
            self._call_store.withdraw_approvals_work(session_id, reason, result), notify_sessions=False
        )

    async def expire_approvals(self) -> list[str]:
        """Expire overdue approvals; return the ids of their sessions."""
        expired = await self._store_decisions(
            self._call_store.expire_approvals_work(datetime.now(UTC), expired_call_result)
        )
        return list(dict.fromkeys(approval.session for approval in expired))

    async def abandon_calls(self, session_id: str, turn: int, reason: str) -> None:
        """Give unfinished calls of a turn a result that says they were cancelled."""

        def outcome(record: LedgerCall) -> CallResult:
            if record.state is CallState.RUNNING:
                return failed_call_result(
                    f"This call was running when it was cancelled ({reason}). It may have happened in part."
                )
            return refused_call_result(f"This call was cancelled ({reason}) before it was run.")

        await self._store_decisions(
            self._call_store.abandon_calls_work(session_id, turn, reason, outcome), notify_sessions=False
        )

    async def list_approvals(
        self,
        tenant: str | None,
        *,
        session: str | None = None,
        state: ApprovalState | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> Approvals:
        """List approvals, newest first; `before` is the last known id."""
        approvals = await self._call_store.list_approvals(
            tenant, session, state, before, max(1, min(limit, MAX_LISTED))
        )
        return [add_call_summary(each) for each in approvals]

    async def _run_shared(
        self, key: CallKey, session: Session, turn: int, call: ToolCall, specs: Mapping[str, ToolSpec]
    ) -> CallResult | Approval:
        """Return the result or the pending approval of a call; concurrent callers share one task."""
        while True:
            shared = self._shared_calls.get(key)
            is_first = shared is None
            if shared is None:
                task = asyncio.create_task(self._run_recorded(session, turn, call, specs), name=f"call-{call.id}")
                shared = self._shared_calls[key] = _SharedCall(task)
            elif shared.cancelled:
                await asyncio.wait({shared.task}, timeout=_CANCEL_TIMEOUT)
                self._remove_finished(key, shared)
                continue
            shared.callers += 1
            try:
                outcome = await asyncio.shield(shared.task)
            finally:
                shared.callers -= 1
                if not shared.callers:
                    await _cancel_shared_call(shared)
                self._remove_finished(key, shared)
            # An approval read for another caller may be older than this caller's notification.
            if is_first or isinstance(outcome, CallResult):
                return outcome

    async def _run_recorded(
        self, session: Session, turn: int, call: ToolCall, specs: Mapping[str, ToolSpec]
    ) -> CallResult | Approval:
        spec = specs.get(call.name)
        kind, tool = (None, call.name) if spec is None else (spec.kind, spec.tool)
        judge = self._call_policy.judge_tool_call(turn, call, specs)
        work = self._call_store.enter_call_work(
            session.id, turn, _storable_call(call), kind, tool, judge, self._chat.repeats
        )
        ledger_call = await self._write(work)
        record, approval = ledger_call.record, ledger_call.approval
        if record.result is not None:
            return record.result
        if approval is not None and approval.state is ApprovalState.PENDING:
            self._approval_created.set()
            return add_call_summary(approval)
        # The recorded arguments count, not the arguments of a later call with the same id.
        edited = {"arguments": approval.edited} if approval and approval.edited is not None else {}
        call_to_run = record.call.model_copy(update=edited)
        spec = specs.get(call_to_run.name)
        if record.state is CallState.ASKED:
            result = refused_call_result(UNDECIDED_MESSAGE)
        elif ledger_call.must_run and spec is None:
            result = refused_call_result(f"The session has no tool {call_to_run.name} any more, so it was not run.")
        elif spec is None or not (ledger_call.must_run or spec.effect == "none"):
            result = failed_call_result(LOST_CALL_MESSAGE)
        else:
            result = await self._run_tool(session, turn, call_to_run, spec)
        return await self._write(self._call_store.finish_call_work(session.id, call.id, _storable_result(result)))

    def _remove_finished(self, key: CallKey, shared: _SharedCall) -> None:
        if shared.task.done() and self._shared_calls.get(key) is shared:
            del self._shared_calls[key]

    async def _run_tool(self, session: Session, turn: int, call: ToolCall, spec: ToolSpec) -> CallResult:
        try:
            return await self._run_function(session, turn, call, spec)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return failed_call_result(f"{spec.name} was interrupted.")
        except Exception as error:  # `run` should return failed results; an exception must not end the turn
            log.exception("tool failed", session=session.id, call=call.id, tool=spec.name)
            return failed_call_result(f"{spec.name} failed: {str(error) or type(error).__name__}")

    async def _write(self, work: Work[WithEvents[T]]) -> T:
        value, _ = await self._events.write_with_events(work, itemgetter(1))
        return value

    async def _store_decisions(self, work: Work[WithEvents[Approvals]], *, notify_sessions: bool = True) -> Approvals:
        """Store a decision and notify its waiters, even if the caller is cancelled."""

        async def store_and_notify() -> Approvals:
            decided = await self._write(work)
            self._notify_listeners(decided, notify_sessions=notify_sessions)
            return decided

        task = asyncio.create_task(store_and_notify(), name="approvals-decide")
        self._decision_tasks.add(task)
        task.add_done_callback(self._decision_tasks.discard)
        return await asyncio.shield(task)

    @contextmanager
    def _subscribe(self, key: CallKey) -> Iterator[asyncio.Event]:
        """Register for decisions about a call; entered before reading the call, so that none is missed."""
        notification = asyncio.Event()
        self._listeners.setdefault(key, set()).add(notification)
        try:
            yield notification
        finally:
            self._listeners[key].discard(notification)
            if not self._listeners[key]:
                del self._listeners[key]

    def _notify_listeners(self, decided: Iterable[Approval], *, notify_sessions: bool = True) -> None:
        """Notify waiters; with `notify_sessions`, call `on_decided` for sessions without waiters."""
        without_listeners: dict[str, None] = {}
        for approval in decided:
            listeners = self._listeners.get((approval.session, approval.call_id), ())
            for notification in listeners:
                notification.set()
            if not listeners:
                without_listeners[approval.session] = None
        for session_id in without_listeners if notify_sessions else ():
            self.on_decided(session_id)

    async def _expire_loop(self) -> None:
        while True:
            self._approval_created.clear()
            try:
                due = await self._call_store.next_expiry()
                left = _CHECK_INTERVAL if due is None else (due - datetime.now(UTC)).total_seconds()
                if left <= 0:
                    await self.expire_approvals()
                    continue
            except PaddockError as error:
                log.warning("could not check approvals", error=str(error))
                left = _RETRY_DELAY
            await _wait_for_event(self._approval_created, min(left, _CHECK_INTERVAL))


async def _wait_for_event(notification: asyncio.Event, seconds: float = _CHECK_INTERVAL) -> None:
    """Wait for the event, at most for some seconds, and clear it."""
    try:
        async with asyncio.timeout(seconds):
            await notification.wait()
    except TimeoutError:
        pass
    notification.clear()


async def _cancel_shared_call(shared: _SharedCall) -> None:
    """Cancel a call that no caller waits for any more."""
    if not shared.task.done():
        shared.cancelled = True
        shared.task.cancel()
        await asyncio.wait({shared.task}, timeout=_CANCEL_TIMEOUT)


def _storable_call(call: ToolCall) -> ToolCall:
    return call if call.malformed is None else call.model_copy(update={"malformed": _storable_text(call.malformed)})


def _storable_result(result: CallResult) -> CallResult:
    """Return the result with lone surrogates replaced, which databases and clients reject."""
    parts = (
        TextContent(text=_storable_text(part.text)) if isinstance(part, TextContent) else part
        for part in result.content
    )
    return result.model_copy(update={"content": tuple(parts)})


def _storable_text(text: str) -> str:
    return text.encode(errors="replace").decode()
