"""Named queries about calls of sessions and their approvals.

Changes are units of work for `EventLog.together`: they return their result and the events to publish.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias, TypeVar

from sqlalchemy import ColumnElement, Connection, and_, func, or_, select

from paddock.errors import Conflict, InvalidInput, NotFound, SessionNotFound
from paddock.model.owners import private_subject_of_view
from paddock.model.session_events import ApprovalDecided, ApprovalExpired, ApprovalRequired, SessionChanged
from paddock.model.sessions import (
    Approval,
    ApprovalDecision,
    ApprovalState,
    CallResult,
    CallState,
    LedgerCall,
    Policy,
    Session,
    SessionState,
    ToolCall,
)
from paddock.store.chat_sessions.call_ledger import CallLedger, to_approval
from paddock.store.chat_sessions.session_store import require_session
from paddock.store.database import Store, Work
from paddock.store.event_store import NewEvent
from paddock.store.row_mapping import row_to_model
from paddock.store.tables import approvals, session_messages, sessions
from paddock.store.visibility import visible_conditions

T = TypeVar("T")
Told: TypeAlias = tuple[T, Sequence[NewEvent]]
GRANTED = (ApprovalState.APPROVED, ApprovalState.EDITED)


@dataclass(frozen=True, slots=True)
class AllowCall:
    """Run the call."""


@dataclass(frozen=True, slots=True)
class AskApproval:
    """Ask a person."""

    approval: Approval
    schema: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class RefuseCall:
    """Refuse the call."""

    result: CallResult


Judge: TypeAlias = Callable[[Session, int, datetime], AllowCall | AskApproval | RefuseCall]
"""Policy function: session and number of identical preceding calls → verdict on a call."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A call in the ledger."""

    record: LedgerCall
    approval: Approval | None = None
    taken: bool = False
    """Whether the caller must run it, because it was not running before."""


@dataclass(frozen=True, slots=True)
class ApprovalResolution:
    """Outcome of a decision."""

    approval: Approval
    result: CallResult | None = None
    policy: Policy | None = None
    also: Callable[[LedgerCall, Approval], Approval | None] | None = None
    """Decides other pending approvals: returns the decided approval or `None`."""


Resolve: TypeAlias = Callable[
    [Session, LedgerCall, Approval, Mapping[str, Any] | None, ApprovalDecision], ApprovalResolution
]


class CallStore:
    """Ledger of calls, with approvals."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def entering(
        self, session_id: str, turn: int, call: ToolCall, kind: str | None, tool: str, judge: Judge, most: int
    ) -> Work[Told[LedgerEntry]]:
        """Find a call in the ledger or insert it with the verdict of `judge`; the caller runs allowed new calls.

        `most` bounds the preceding calls that are compared with it.
        """

        def work(connection: Connection) -> Told[LedgerEntry]:
            ledger = CallLedger(connection, session_id)
            record = ledger.find(call.id)
            if record is not None:
                return _found(ledger, record), ledger.told
            judgement = judge(ledger.session, ledger.repeats(turn, call, most), ledger.now)
            record = ledger.enter(turn, call, kind, tool)
            match judgement:
                case AllowCall():
                    return LedgerEntry(ledger.run(record), taken=True), ledger.told
                case RefuseCall(result):
                    return LedgerEntry(ledger.finish(record, result)), ledger.told
                case AskApproval(approval, schema):
                    ledger.ask(approval, schema)
                    ledger.tell(ApprovalRequired(approval=approval))
                    ledger.move(SessionState.WAITING)
                    return LedgerEntry(record, approval), ledger.told

        return work

    def finishing(self, session_id: str, call_id: str, result: CallResult) -> Work[Told[CallResult]]:
        """Store the result of a call. The first result wins and is returned."""

        def work(connection: Connection) -> Told[CallResult]:
            ledger = CallLedger(connection, session_id)
            record = ledger.find(call_id)
            if record is None:
                raise NotFound(f"There is no call {call_id[:80]!r} in session {session_id}.")
            finished = ledger.finish(record, result).result
            assert finished is not None
            return finished, ledger.told

        return work

    def settling(
        self, session_id: str, turn: int, call: ToolCall, kind: str | None, result: CallResult
    ) -> Work[Told[list[Approval]]]:
        """Store the result of a call that a client ran; return the approval that became obsolete."""

        def work(connection: Connection) -> Told[list[Approval]]:
            ledger = CallLedger(connection, session_id)
            record = ledger.find(call.id)
            if record is None:
                record = ledger.run(ledger.enter(turn, call, kind, call.name))
            withdrawn = []
            approval = ledger.approval(call.id)
            if record.result is None and approval is not None and approval.state is ApprovalState.PENDING:
                withdrawn.append(_withdraw(ledger, approval, "the agent did not wait for it"))
            ledger.finish(record, result)
            ledger.go_on()
            return withdrawn, ledger.told

        return work

    def deciding(
        self, tenant: str, session_id: str, decisions: Sequence[ApprovalDecision], resolve: Resolve
    ) -> Work[Told[list[Approval]]]:
        """Decide approvals of a session, all or none, and others that follow from them.

        Raises `NotFound`, `Conflict`, and what `resolve` raises.
        """

        def work(connection: Connection) -> Told[list[Approval]]:
            require_session(connection, session_id, tenant)
            ledger = CallLedger(connection, session_id)
            resolutions = [_decide(ledger, decision, resolve) for decision in decisions]
            others = [each for resolution in resolutions for each in _decide_others(ledger, resolution)]
            ledger.go_on()
            return [*(each.approval for each in resolutions), *others], ledger.told

        return work

    def expiring(self, now: datetime, outcome: Callable[[Approval], CallResult]) -> Work[Told[list[Approval]]]:
        """Expire overdue approvals."""
        over_time = (approvals.c.state == ApprovalState.PENDING, approvals.c.expires_at <= now)
        due = select(approvals).where(*over_time, approvals.c.session.in_(select(sessions.c.id)))

        def work(connection: Connection) -> Told[list[Approval]]:
            expired: list[Approval] = []
            told: list[NewEvent] = []
            rows = connection.execute(due.order_by(approvals.c.created_at, approvals.c.id)).mappings().all()
            ledgers = {
                session_id: CallLedger(connection, session_id) for session_id in {row["session"] for row in rows}
            }
            for approval in map(to_approval, rows):
                ledger = ledgers[approval.session]
                over = approval.model_copy(update={"state": ApprovalState.EXPIRED, "decided_at": ledger.now})
                ledger.resolve(over)
                ledger.tell(ApprovalExpired(approval_id=over.id, call_id=over.call_id))
                if record := ledger.find(over.call_id):
                    ledger.finish(record, outcome(over))
                expired.append(over)
            for ledger in ledgers.values():
                ledger.go_on()
                told += ledger.told
            return expired, told

        return work

    def withdrawing(self, session_id: str, reason: str, result: CallResult) -> Work[Told[list[Approval]]]:
        """Withdraw pending approvals. The end of the turn updates the session's state."""

        def work(connection: Connection) -> Told[list[Approval]]:
            try:
                ledger = CallLedger(connection, session_id)
            except SessionNotFound:
                return [], []
            withdrawn = [_withdraw(ledger, approval, reason) for approval in ledger.pending()]
            for approval in withdrawn:
                if record := ledger.find(approval.call_id):
                    ledger.finish(record, result)
            return withdrawn, ledger.told

        return work

    def abandoning(
        self, session_id: str, turn: int, reason: str, outcome: Callable[[LedgerCall], CallResult]
    ) -> Work[Told[list[Approval]]]:
        """Store a result for every call of a turn that has none, including calls never started."""
        said = select(session_messages.c.calls).where(
            session_messages.c.session == session_id,
            session_messages.c.turn == turn,
            session_messages.c.role == "assistant",
        )

        def work(connection: Connection) -> Told[list[Approval]]:
            try:
                ledger = CallLedger(connection, session_id)
            except SessionNotFound:
                return [], []
            written = connection.execute(said.order_by(session_messages.c.number)).scalars().all()
            for call in (row_to_model(ToolCall, each) for calls in written for each in calls):
                if ledger.find(call.id) is None:
                    ledger.enter(turn, call, None, call.name)
            withdrawn = []
            for record in ledger.unfinished(turn):
                approval = ledger.approval(record.call.id)
                if approval is not None and approval.state is ApprovalState.PENDING:
                    withdrawn.append(_withdraw(ledger, approval, reason))
                ledger.finish(record, outcome(record))
            return withdrawn, ledger.told

        return work

    async def pending(self, session_id: str) -> list[Approval]:
        """Return a session's pending approvals, oldest first."""
        return await self._store.read(lambda connection: CallLedger.waiting(connection, session_id))

    async def next_expiry(self) -> datetime | None:
        """Return the next expiry time of a pending approval."""
        pending = (approvals.c.state == ApprovalState.PENDING, approvals.c.session.in_(select(sessions.c.id)))
        statement = select(func.min(approvals.c.expires_at)).where(*pending)

        def work(connection: Connection) -> datetime | None:
            found: datetime | None = connection.execute(statement).scalar()
            return found

        return await self._store.read(work)

    async def approvals(
        self, tenant: str | None, session: str | None, state: ApprovalState | None, before: str | None, limit: int
    ) -> list[Approval]:
        """Return approvals, newest first; `before` is the last id of the previous page."""
        conditions: list[ColumnElement[bool]] = _visible(tenant)
        for column, wanted in (
            (approvals.c.session, session),
            (approvals.c.state, state),
        ):
            if wanted is not None:
                conditions.append(column == wanted)

        def work(connection: Connection) -> list[Approval]:
            here = [] if before is None else [_earlier(connection, before, tenant)]
            statement = select(approvals).where(*conditions, *here)
            statement = statement.order_by(approvals.c.created_at.desc(), approvals.c.id.desc()).limit(limit)
            return [to_approval(row) for row in connection.execute(statement).mappings()]

        return await self._store.read(work)


def _found(ledger: CallLedger, record: LedgerCall) -> LedgerEntry:
    approval = ledger.approval(record.call.id)
    if record.state is CallState.ASKED and approval is not None and approval.state in GRANTED:
        return LedgerEntry(ledger.run(record, approval.edited), approval, taken=True)
    return LedgerEntry(record, approval)


def _decide(ledger: CallLedger, decision: ApprovalDecision, resolve: Resolve) -> ApprovalResolution:
    found = ledger.asked(decision.approval)
    if found is None:
        raise NotFound(f"There is no approval {decision.approval[:80]!r} in session {ledger.session.id}.")
    approval, schema = found
    record = ledger.find(approval.call_id)
    if record is None or (record.result is not None and approval.state is ApprovalState.PENDING):
        raise Conflict(f"the call of approval {approval.id} is over; nothing is left to decide")
    resolution = resolve(ledger.session, record, approval, schema, decision)
    decided = resolution.approval
    _tell_decided(ledger, decided)
    if resolution.policy is not None and resolution.policy != ledger.session.policy:
        ledger.alter(policy=resolution.policy)
        ledger.tell(SessionChanged(policy=resolution.policy, by=decided.decided_by))
    if resolution.result is not None:
        ledger.finish(record, resolution.result)
    return resolution


def _decide_others(ledger: CallLedger, resolution: ApprovalResolution) -> list[Approval]:
    decided = []
    for approval in ledger.pending() if resolution.also is not None else ():
        record = ledger.find(approval.call_id)
        if record is None or record.result is not None or resolution.also is None:
            continue
        if (other := resolution.also(record, approval)) is not None:
            _tell_decided(ledger, other)
            decided.append(other)
    return decided


def _tell_decided(ledger: CallLedger, decided: Approval) -> None:
    ledger.resolve(decided)
    ledger.tell(
        ApprovalDecided(
            approval_id=decided.id,
            call_id=decided.call_id,
            state=decided.state,
            by=decided.decided_by,
            reason=decided.reason,
            arguments=decided.edited,
            always=decided.always,
        )
    )


def _withdraw(ledger: CallLedger, approval: Approval, reason: str) -> Approval:
    state = {"state": ApprovalState.WITHDRAWN, "reason": reason, "decided_at": ledger.now}
    withdrawn = approval.model_copy(update=state)
    ledger.resolve(withdrawn)
    told = ApprovalDecided(
        approval_id=withdrawn.id, call_id=withdrawn.call_id, state=ApprovalState.WITHDRAWN, reason=reason
    )
    ledger.tell(told)
    return withdrawn


def _visible(tenant: str | None) -> list[ColumnElement[bool]]:
    if tenant is None:
        return []
    conditions: list[ColumnElement[bool]] = [approvals.c.tenant == str(tenant)]
    if private_subject_of_view(tenant) is not None:
        conditions.append(approvals.c.session.in_(select(sessions.c.id).where(*visible_conditions(sessions, tenant))))
    return conditions


def _earlier(connection: Connection, before: str, tenant: str | None) -> ColumnElement[bool]:
    row = connection.execute(select(approvals).where(approvals.c.id == before, *_visible(tenant))).mappings().first()
    if row is None:
        raise InvalidInput(f"there is no approval {before[:80]!r}; use the last id of an earlier page")
    same_moment = and_(approvals.c.created_at == row["created_at"], approvals.c.id < before)
    return or_(approvals.c.created_at < row["created_at"], same_moment)
