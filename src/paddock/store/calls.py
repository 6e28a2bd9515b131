"""Named queries about the calls of sessions and what persons decide about them.

Whatever changes is a unit of work for `EventLog.together`, and returns what it has to tell beside its result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias, TypeVar

from sqlalchemy import ColumnElement, Connection, and_, func, or_, select

from paddock.errors import Conflict, InvalidInput, NotFound, SessionNotFound
from paddock.model.owners import bounded_to
from paddock.model.session_events import ApprovalDecided, ApprovalExpired, ApprovalRequired, SessionChanged
from paddock.model.sessions import (
    Approval,
    ApprovalState,
    Call,
    CallRecord,
    CallResult,
    CallState,
    Decision,
    Policy,
    Session,
    SessionState,
)
from paddock.store.database import Store, Work
from paddock.store.events import Happening
from paddock.store.ledger import Ledger, to_approval
from paddock.store.rows import to_model
from paddock.store.sessions import known
from paddock.store.tables import approvals, session_messages, sessions
from paddock.store.visible import visible

T = TypeVar("T")
Told: TypeAlias = tuple[T, Sequence[Happening]]
GRANTED = (ApprovalState.APPROVED, ApprovalState.EDITED)


@dataclass(frozen=True, slots=True)
class Allow:
    """The call may be run."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A person has to decide."""

    approval: Approval
    schema: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Refuse:
    """The call is not run."""

    result: CallResult


Judge: TypeAlias = Callable[[Session, int, datetime], Allow | Ask | Refuse]
"""Given the session as it is and how often the very same call was made just before, says what becomes of a call."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A call as the ledger has it."""

    record: CallRecord
    approval: Approval | None = None
    taken: bool = False
    """Whether it is the asker's to run: it was not running before."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """What a decision comes to."""

    approval: Approval
    result: CallResult | None = None
    policy: Policy | None = None
    also: Callable[[CallRecord, Approval], Approval | None] | None = None
    """What else of the session it decides: given something that waits, that as it is then, or `None`."""


Resolve: TypeAlias = Callable[[Session, CallRecord, Approval, Mapping[str, Any] | None, Decision], Resolution]


class CallStore:
    """The ledger of calls, and the approvals that belong to it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def entering(
        self, session_id: str, turn: int, call: Call, kind: str | None, tool: str, judge: Judge, most: int
    ) -> Work[Told[Entry]]:
        """Find a call in the ledger, or enter it as `judge` says; one that may be run now is the asker's to run.

        `most` is how many calls before it are compared with it.
        """

        def work(connection: Connection) -> Told[Entry]:
            ledger = Ledger(connection, session_id)
            record = ledger.find(call.id)
            if record is not None:
                return _found(ledger, record), ledger.told
            judgement = judge(ledger.session, ledger.repeats(turn, call, most), ledger.now)
            record = ledger.enter(turn, call, kind, tool)
            match judgement:
                case Allow():
                    return Entry(ledger.run(record), taken=True), ledger.told
                case Refuse(result):
                    return Entry(ledger.finish(record, result)), ledger.told
                case Ask(approval, schema):
                    ledger.ask(approval, schema)
                    ledger.tell(ApprovalRequired(approval=approval))
                    ledger.move(SessionState.WAITING)
                    return Entry(record, approval), ledger.told

        return work

    def finishing(self, session_id: str, call_id: str, result: CallResult) -> Work[Told[CallResult]]:
        """Keep the result of a call; the first one counts, and is returned."""

        def work(connection: Connection) -> Told[CallResult]:
            ledger = Ledger(connection, session_id)
            record = ledger.find(call_id)
            if record is None:
                raise NotFound(f"There is no call {call_id[:80]!r} in session {session_id}.")
            finished = ledger.finish(record, result).result
            assert finished is not None
            return finished, ledger.told

        return work

    def settling(
        self, session_id: str, turn: int, call: Call, kind: str | None, result: CallResult
    ) -> Work[Told[list[Approval]]]:
        """Keep what came of a call that somebody else has carried out, and say which approval nobody needs any more."""

        def work(connection: Connection) -> Told[list[Approval]]:
            ledger = Ledger(connection, session_id)
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
        self, tenant: str, session_id: str, decisions: Sequence[Decision], resolve: Resolve
    ) -> Work[Told[list[Approval]]]:
        """Decide approvals of a session, all or none, and then what else is decided by that.

        Raises `NotFound`, `Conflict`, and what `resolve` raises.
        """

        def work(connection: Connection) -> Told[list[Approval]]:
            known(connection, session_id, tenant)
            ledger = Ledger(connection, session_id)
            resolutions = [_decide(ledger, decision, resolve) for decision in decisions]
            others = [each for resolution in resolutions for each in _decide_others(ledger, resolution)]
            ledger.go_on()
            return [*(each.approval for each in resolutions), *others], ledger.told

        return work

    def expiring(self, now: datetime, outcome: Callable[[Approval], CallResult]) -> Work[Told[list[Approval]]]:
        """Decide what nobody has decided in time."""
        over_time = (approvals.c.state == ApprovalState.PENDING, approvals.c.expires_at <= now)
        due = select(approvals).where(*over_time, approvals.c.session.in_(select(sessions.c.id)))

        def work(connection: Connection) -> Told[list[Approval]]:
            expired: list[Approval] = []
            told: list[Happening] = []
            rows = connection.execute(due.order_by(approvals.c.created_at, approvals.c.id)).mappings().all()
            ledgers = {session_id: Ledger(connection, session_id) for session_id in {row["session"] for row in rows}}
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
        """Ask nobody any more. The session's state is left to whoever ends its turn."""

        def work(connection: Connection) -> Told[list[Approval]]:
            try:
                ledger = Ledger(connection, session_id)
            except SessionNotFound:
                return [], []
            withdrawn = [_withdraw(ledger, approval, reason) for approval in ledger.pending()]
            for approval in withdrawn:
                if record := ledger.find(approval.call_id):
                    ledger.finish(record, result)
            return withdrawn, ledger.told

        return work

    def abandoning(
        self, session_id: str, turn: int, reason: str, outcome: Callable[[CallRecord], CallResult]
    ) -> Work[Told[list[Approval]]]:
        """Give every call of a turn that has no result one, those too that the model wrote and nobody came to."""
        said = select(session_messages.c.calls).where(
            session_messages.c.session == session_id,
            session_messages.c.turn == turn,
            session_messages.c.role == "assistant",
        )

        def work(connection: Connection) -> Told[list[Approval]]:
            try:
                ledger = Ledger(connection, session_id)
            except SessionNotFound:
                return [], []
            written = connection.execute(said.order_by(session_messages.c.number)).scalars().all()
            for call in (to_model(Call, each) for calls in written for each in calls):
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
        """What waits for a person in a session, oldest first."""
        return await self._store.read(lambda connection: Ledger.waiting(connection, session_id))

    async def next_expiry(self) -> datetime | None:
        """When the next of what waits is over time."""
        pending = (approvals.c.state == ApprovalState.PENDING, approvals.c.session.in_(select(sessions.c.id)))
        statement = select(func.min(approvals.c.expires_at)).where(*pending)

        def work(connection: Connection) -> datetime | None:
            found: datetime | None = connection.execute(statement).scalar()
            return found

        return await self._store.read(work)

    async def approvals(
        self, tenant: str | None, session: str | None, state: ApprovalState | None, before: str | None, limit: int
    ) -> list[Approval]:
        """Approvals, newest first; `before` is the id of the last one that is known."""
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


def _found(ledger: Ledger, record: CallRecord) -> Entry:
    approval = ledger.approval(record.call.id)
    if record.state is CallState.ASKED and approval is not None and approval.state in GRANTED:
        return Entry(ledger.run(record, approval.edited), approval, taken=True)
    return Entry(record, approval)


def _decide(ledger: Ledger, decision: Decision, resolve: Resolve) -> Resolution:
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


def _decide_others(ledger: Ledger, resolution: Resolution) -> list[Approval]:
    decided = []
    for approval in ledger.pending() if resolution.also is not None else ():
        record = ledger.find(approval.call_id)
        if record is None or record.result is not None or resolution.also is None:
            continue
        if (other := resolution.also(record, approval)) is not None:
            _tell_decided(ledger, other)
            decided.append(other)
    return decided


def _tell_decided(ledger: Ledger, decided: Approval) -> None:
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


def _withdraw(ledger: Ledger, approval: Approval, reason: str) -> Approval:
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
    if bounded_to(tenant) is not None:
        conditions.append(approvals.c.session.in_(select(sessions.c.id).where(*visible(sessions, tenant))))
    return conditions


def _earlier(connection: Connection, before: str, tenant: str | None) -> ColumnElement[bool]:
    row = connection.execute(select(approvals).where(approvals.c.id == before, *_visible(tenant))).mappings().first()
    if row is None:
        raise InvalidInput(f"there is no approval {before[:80]!r} to go on from; use one of an earlier page")
    same_moment = and_(approvals.c.created_at == row["created_at"], approvals.c.id < before)
    return or_(approvals.c.created_at < row["created_at"], same_moment)
