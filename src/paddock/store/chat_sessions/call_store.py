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
from paddock.store.chat_sessions.call_ledger import CallLedger, approval_from_row
from paddock.store.chat_sessions.session_store import load_visible_session
from paddock.store.database import Store, Work
from paddock.store.event_store import NewEvent
from paddock.store.row_mapping import row_to_model
from paddock.store.tables import approvals, session_messages, sessions
from paddock.store.visibility import visible_row_conditions

T = TypeVar("T")
WithEvents: TypeAlias = tuple[T, Sequence[NewEvent]]
GRANTED_STATES = (ApprovalState.APPROVED, ApprovalState.EDITED)


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


CallJudge: TypeAlias = Callable[[Session, int, datetime], AllowCall | AskApproval | RefuseCall]
"""Policy function: session and number of identical preceding calls → verdict on a call."""


@dataclass(frozen=True, slots=True)
class CallWithApproval:
    """A call in the ledger."""

    record: LedgerCall
    approval: Approval | None = None
    must_run: bool = False
    """Whether the caller must run the call, because it was not running before."""


@dataclass(frozen=True, slots=True)
class ApprovalResolution:
    """Outcome of a decision."""

    approval: Approval
    result: CallResult | None = None
    policy: Policy | None = None
    decide_other: Callable[[LedgerCall, Approval], Approval | None] | None = None
    """Decides other pending approvals: returns the decided approval or `None`."""


DecisionResolver: TypeAlias = Callable[
    [Session, LedgerCall, Approval, Mapping[str, Any] | None, ApprovalDecision], ApprovalResolution
]


class CallStore:
    """Ledger of calls, with approvals. Methods ending in `_work` return units of work."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def enter_call_work(
        self,
        session_id: str,
        turn: int,
        call: ToolCall,
        kind: str | None,
        tool: str,
        judge: CallJudge,
        max_repeats: int,
    ) -> Work[WithEvents[CallWithApproval]]:
        """Find a call in the ledger or insert it with the verdict of `judge`; the caller runs allowed new calls.

        `max_repeats` bounds the preceding calls that are compared with it.
        """

        def work(connection: Connection) -> WithEvents[CallWithApproval]:
            ledger = CallLedger(connection, session_id)
            record = ledger.find_call(call.id)
            if record is not None:
                return _existing_entry(ledger, record), ledger.events
            judgement = judge(ledger.session, ledger.count_repeats(turn, call, max_repeats), ledger.now)
            record = ledger.insert_call(turn, call, kind, tool)
            match judgement:
                case AllowCall():
                    return CallWithApproval(ledger.start_call(record), must_run=True), ledger.events
                case RefuseCall(result):
                    return CallWithApproval(ledger.finish_call(record, result)), ledger.events
                case AskApproval(approval, schema):
                    ledger.insert_approval(approval, schema)
                    ledger.emit(ApprovalRequired(approval=approval))
                    ledger.change_state(SessionState.WAITING)
                    return CallWithApproval(record, approval), ledger.events

        return work

    def finish_call_work(self, session_id: str, call_id: str, result: CallResult) -> Work[WithEvents[CallResult]]:
        """Store the result of a call. The first result wins and is returned."""

        def work(connection: Connection) -> WithEvents[CallResult]:
            ledger = CallLedger(connection, session_id)
            record = ledger.find_call(call_id)
            if record is None:
                raise NotFound(f"There is no call {call_id[:80]!r} in session {session_id}.")
            finished = ledger.finish_call(record, result).result
            assert finished is not None
            return finished, ledger.events

        return work

    def settle_call_work(
        self, session_id: str, turn: int, call: ToolCall, kind: str | None, result: CallResult
    ) -> Work[WithEvents[list[Approval]]]:
        """Store the result of a call that a client ran; return the approval that became obsolete."""

        def work(connection: Connection) -> WithEvents[list[Approval]]:
            ledger = CallLedger(connection, session_id)
            record = ledger.find_call(call.id)
            if record is None:
                record = ledger.start_call(ledger.insert_call(turn, call, kind, call.name))
            withdrawn = []
            approval = ledger.find_approval_of_call(call.id)
            if record.result is None and approval is not None and approval.state is ApprovalState.PENDING:
                withdrawn.append(_withdraw(ledger, approval, "the agent did not wait for it"))
            ledger.finish_call(record, result)
            ledger.leave_waiting_state()
            return withdrawn, ledger.events

        return work

    def decide_approvals_work(
        self, tenant: str, session_id: str, decisions: Sequence[ApprovalDecision], resolve: DecisionResolver
    ) -> Work[WithEvents[list[Approval]]]:
        """Decide approvals of a session, all or none, and others that follow from them.

        Raises `NotFound`, `Conflict`, and what `resolve` raises.
        """

        def work(connection: Connection) -> WithEvents[list[Approval]]:
            load_visible_session(connection, session_id, tenant)
            ledger = CallLedger(connection, session_id)
            resolutions = [_decide(ledger, decision, resolve) for decision in decisions]
            others = [each for resolution in resolutions for each in _decide_others(ledger, resolution)]
            ledger.leave_waiting_state()
            return [*(each.approval for each in resolutions), *others], ledger.events

        return work

    def expire_approvals_work(
        self, now: datetime, outcome: Callable[[Approval], CallResult]
    ) -> Work[WithEvents[list[Approval]]]:
        """Expire overdue approvals."""
        overdue = (approvals.c.state == ApprovalState.PENDING, approvals.c.expires_at <= now)
        due = select(approvals).where(*overdue, approvals.c.session.in_(select(sessions.c.id)))

        def work(connection: Connection) -> WithEvents[list[Approval]]:
            expired: list[Approval] = []
            events: list[NewEvent] = []
            rows = connection.execute(due.order_by(approvals.c.created_at, approvals.c.id)).mappings().all()
            ledgers = {
                session_id: CallLedger(connection, session_id) for session_id in {row["session"] for row in rows}
            }
            for approval in map(approval_from_row, rows):
                ledger = ledgers[approval.session]
                expired_approval = approval.model_copy(
                    update={"state": ApprovalState.EXPIRED, "decided_at": ledger.now}
                )
                ledger.store_decision(expired_approval)
                ledger.emit(ApprovalExpired(approval_id=expired_approval.id, call_id=expired_approval.call_id))
                if record := ledger.find_call(expired_approval.call_id):
                    ledger.finish_call(record, outcome(expired_approval))
                expired.append(expired_approval)
            for ledger in ledgers.values():
                ledger.leave_waiting_state()
                events += ledger.events
            return expired, events

        return work

    def withdraw_approvals_work(
        self, session_id: str, reason: str, result: CallResult
    ) -> Work[WithEvents[list[Approval]]]:
        """Withdraw pending approvals. The end of the turn updates the session's state."""

        def work(connection: Connection) -> WithEvents[list[Approval]]:
            try:
                ledger = CallLedger(connection, session_id)
            except SessionNotFound:
                return [], []
            withdrawn = [_withdraw(ledger, approval, reason) for approval in ledger.pending_approvals()]
            for approval in withdrawn:
                if record := ledger.find_call(approval.call_id):
                    ledger.finish_call(record, result)
            return withdrawn, ledger.events

        return work

    def abandon_calls_work(
        self, session_id: str, turn: int, reason: str, outcome: Callable[[LedgerCall], CallResult]
    ) -> Work[WithEvents[list[Approval]]]:
        """Store a result for every call of a turn that has none, including calls never started."""
        assistant_calls = select(session_messages.c.calls).where(
            session_messages.c.session == session_id,
            session_messages.c.turn == turn,
            session_messages.c.role == "assistant",
        )

        def work(connection: Connection) -> WithEvents[list[Approval]]:
            try:
                ledger = CallLedger(connection, session_id)
            except SessionNotFound:
                return [], []
            call_lists = connection.execute(assistant_calls.order_by(session_messages.c.number)).scalars().all()
            for call in (row_to_model(ToolCall, each) for calls in call_lists for each in calls):
                if ledger.find_call(call.id) is None:
                    ledger.insert_call(turn, call, None, call.name)
            withdrawn = []
            for record in ledger.unfinished_calls(turn):
                approval = ledger.find_approval_of_call(record.call.id)
                if approval is not None and approval.state is ApprovalState.PENDING:
                    withdrawn.append(_withdraw(ledger, approval, reason))
                ledger.finish_call(record, outcome(record))
            return withdrawn, ledger.events

        return work

    async def list_pending_approvals(self, session_id: str) -> list[Approval]:
        """Return a session's pending approvals, oldest first."""
        return await self._store.read(lambda connection: CallLedger.list_pending_approvals(connection, session_id))

    async def next_expiry(self) -> datetime | None:
        """Return the next expiry time of a pending approval."""
        pending = (approvals.c.state == ApprovalState.PENDING, approvals.c.session.in_(select(sessions.c.id)))
        statement = select(func.min(approvals.c.expires_at)).where(*pending)

        def work(connection: Connection) -> datetime | None:
            expiry: datetime | None = connection.execute(statement).scalar()
            return expiry

        return await self._store.read(work)

    async def list_approvals(
        self, tenant: str | None, session: str | None, state: ApprovalState | None, before: str | None, limit: int
    ) -> list[Approval]:
        """Return approvals, newest first; `before` is the last id of the previous page."""
        conditions: list[ColumnElement[bool]] = _visible_conditions(tenant)
        for column, value in (
            (approvals.c.session, session),
            (approvals.c.state, state),
        ):
            if value is not None:
                conditions.append(column == value)

        def work(connection: Connection) -> list[Approval]:
            page_conditions = [] if before is None else [_before_approval(connection, before, tenant)]
            statement = select(approvals).where(*conditions, *page_conditions)
            statement = statement.order_by(approvals.c.created_at.desc(), approvals.c.id.desc()).limit(limit)
            return [approval_from_row(row) for row in connection.execute(statement).mappings()]

        return await self._store.read(work)


def _existing_entry(ledger: CallLedger, record: LedgerCall) -> CallWithApproval:
    approval = ledger.find_approval_of_call(record.call.id)
    if record.state is CallState.ASKED and approval is not None and approval.state in GRANTED_STATES:
        return CallWithApproval(ledger.start_call(record, approval.edited), approval, must_run=True)
    return CallWithApproval(record, approval)


def _decide(ledger: CallLedger, decision: ApprovalDecision, resolve: DecisionResolver) -> ApprovalResolution:
    approval_and_schema = ledger.find_approval_with_schema(decision.approval)
    if approval_and_schema is None:
        raise NotFound(f"There is no approval {decision.approval[:80]!r} in session {ledger.session.id}.")
    approval, schema = approval_and_schema
    record = ledger.find_call(approval.call_id)
    if record is None or (record.result is not None and approval.state is ApprovalState.PENDING):
        raise Conflict(f"the call of approval {approval.id} is over; nothing is left to decide")
    resolution = resolve(ledger.session, record, approval, schema, decision)
    decided = resolution.approval
    _emit_decided(ledger, decided)
    if resolution.policy is not None and resolution.policy != ledger.session.policy:
        ledger.update_session(policy=resolution.policy)
        ledger.emit(SessionChanged(policy=resolution.policy, by=decided.decided_by))
    if resolution.result is not None:
        ledger.finish_call(record, resolution.result)
    return resolution


def _decide_others(ledger: CallLedger, resolution: ApprovalResolution) -> list[Approval]:
    decided = []
    for approval in ledger.pending_approvals() if resolution.decide_other is not None else ():
        record = ledger.find_call(approval.call_id)
        if record is None or record.result is not None or resolution.decide_other is None:
            continue
        if (other := resolution.decide_other(record, approval)) is not None:
            _emit_decided(ledger, other)
            decided.append(other)
    return decided


def _emit_decided(ledger: CallLedger, decided: Approval) -> None:
    ledger.store_decision(decided)
    ledger.emit(
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
    ledger.store_decision(withdrawn)
    event = ApprovalDecided(
        approval_id=withdrawn.id, call_id=withdrawn.call_id, state=ApprovalState.WITHDRAWN, reason=reason
    )
    ledger.emit(event)
    return withdrawn


def _visible_conditions(tenant: str | None) -> list[ColumnElement[bool]]:
    if tenant is None:
        return []
    conditions: list[ColumnElement[bool]] = [approvals.c.tenant == str(tenant)]
    if private_subject_of_view(tenant) is not None:
        conditions.append(
            approvals.c.session.in_(select(sessions.c.id).where(*visible_row_conditions(sessions, tenant)))
        )
    return conditions


def _before_approval(connection: Connection, before: str, tenant: str | None) -> ColumnElement[bool]:
    row = (
        connection.execute(select(approvals).where(approvals.c.id == before, *_visible_conditions(tenant)))
        .mappings()
        .first()
    )
    if row is None:
        raise InvalidInput(f"there is no approval {before[:80]!r}; use the last id of an earlier page")
    same_moment = and_(approvals.c.created_at == row["created_at"], approvals.c.id < before)
    return or_(approvals.c.created_at < row["created_at"], same_moment)
