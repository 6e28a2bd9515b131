"""The ledger of one session's calls, within one transaction."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, RowMapping, insert, select, update

from paddock.errors import Conflict
from paddock.model.events import EventType
from paddock.model.session_events import (
    CallReady,
    CallResulted,
    CallRunning,
    SessionEvent,
    SessionStateChanged,
)
from paddock.model.sessions import (
    Approval,
    ApprovalState,
    CallResult,
    CallState,
    LedgerCall,
    Session,
    SessionMessage,
    SessionState,
    ToolCall,
)
from paddock.store.chat_sessions.session_log_entries import session_log_entries, session_stream_name
from paddock.store.chat_sessions.session_store import SessionStore
from paddock.store.event_store import NewEvent
from paddock.store.row_mapping import model_to_row, row_to_model
from paddock.store.tables import approvals, events, session_calls

_END_STATES = ("done", "cancelled", "failed")


class CallLedger:
    """Changes of one transaction to a session's calls, with the events to publish.

    Raises `SessionNotFound` if there is no such session.
    """

    def __init__(self, connection: Connection, session_id: str) -> None:
        self.session: Session = SessionStore.load_session(connection, session_id)
        self.now = datetime.now(UTC)
        self.events: list[NewEvent] = []
        self._connection = connection

    def emit(self, event: SessionEvent) -> None:
        self.events += session_log_entries(self.session, event, at=self.now)

    # Calls

    def find_call(self, call_id: str) -> LedgerCall | None:
        row = self._connection.execute(select(session_calls).where(*self._call_conditions(call_id))).mappings().first()
        return None if row is None else ledger_call_from_row(row)

    def unfinished_calls(self, turn: int) -> list[LedgerCall]:
        """Calls of a turn that have no result, oldest first."""
        of_turn = (session_calls.c.session == self.session.id, session_calls.c.turn == turn)
        unfinished = select(session_calls).where(*of_turn, session_calls.c.state != CallState.DONE)
        rows = self._connection.execute(unfinished.order_by(session_calls.c.created_at))
        return [ledger_call_from_row(row) for row in rows.mappings()]

    def count_repeats(self, turn: int, call: ToolCall, max_count: int) -> int:
        """Count identical consecutive calls at the end of a turn, up to `max_count`."""
        newest = (
            select(session_calls.c.digest)
            .where(session_calls.c.session == self.session.id, session_calls.c.turn == turn)
            .order_by(session_calls.c.created_at.desc())
            .limit(max_count)
        )
        count = 0
        for digest in self._connection.execute(newest).scalars():
            if digest != call.digest:
                break
            count += 1
        return count

    def insert_call(self, turn: int, call: ToolCall, kind: str | None, tool: str) -> LedgerCall:
        """Insert a call and emit `call.ready`."""
        record = LedgerCall(
            session=self.session.id,
            call=call,
            turn=turn,
            kind=kind,
            tool=tool,
            state=CallState.ASKED,
            created_at=self.now,
            changed_at=self.now,
        )
        row = model_to_row(record)
        del row["call"]
        call_fields = {
            "id": call.id,
            "name": call.name,
            "arguments": dict(call.arguments),
            "malformed": call.malformed,
            "digest": call.digest,
        }
        self._connection.execute(insert(session_calls), row | call_fields)
        self.emit(CallReady(call=call, kind=kind, tool=tool))
        return record

    def start_call(self, record: LedgerCall, edited: Mapping[str, Any] | None = None) -> LedgerCall:
        """Mark a call that waited as running."""
        sandbox = self.session.sandboxes.get(record.kind or "")
        changes = {"state": CallState.RUNNING, "sandbox_id": sandbox, "changed_at": self.now}
        statement = update(session_calls).where(
            *self._call_conditions(record.call.id), session_calls.c.state == CallState.ASKED
        )
        if not self._connection.execute(statement.values(changes)).rowcount:
            raise Conflict(f"call {record.call.id} is under way already")
        self.emit(CallRunning(call_id=record.call.id, sandbox_id=sandbox, arguments=edited))
        return record.model_copy(update=changes)

    def finish_call(self, record: LedgerCall, result: CallResult) -> LedgerCall:
        """Store a result with its tool message. The first result wins."""
        sandbox = self.session.sandboxes.get(record.kind or "", record.sandbox_id)
        statement = update(session_calls).where(
            *self._call_conditions(record.call.id), session_calls.c.state != CallState.DONE
        )
        changes = {
            "state": CallState.DONE,
            "result": result.model_dump(mode="json"),
            "sandbox_id": None if result.refused else sandbox,
            "changed_at": self.now,
        }
        if not self._connection.execute(statement.values(changes)).rowcount:
            return self.find_call(record.call.id) or record
        message = SessionMessage(
            id=f"result_{record.call.id}",
            session=self.session.id,
            turn=record.turn,
            role="tool",
            content=result.content,
            call_id=record.call.id,
            at=self.now,
        )
        SessionStore.store_message(self._connection, message)
        self.emit(CallResulted(call_id=record.call.id, result=result))
        return record.model_copy(update=changes | {"result": result})

    # Approvals

    def find_approval_of_call(self, call_id: str) -> Approval | None:
        statement = select(approvals).where(approvals.c.session == self.session.id, approvals.c.call_id == call_id)
        row = self._connection.execute(statement).mappings().first()
        return None if row is None else approval_from_row(row)

    def find_approval_with_schema(self, approval_id: str) -> tuple[Approval, Mapping[str, Any] | None] | None:
        """Return an approval with the schema of its edited arguments."""
        statement = select(approvals).where(approvals.c.session == self.session.id, approvals.c.id == approval_id)
        row = self._connection.execute(statement).mappings().first()
        return None if row is None else (approval_from_row(row), row["schema"])

    def insert_approval(self, approval: Approval, schema: Mapping[str, Any] | None) -> None:
        row = model_to_row(approval.model_copy(update={"summary": None}))
        del row["summary"]  # The summary is derived from the other fields.
        row["choices"] = [choice.model_dump(mode="json") for choice in approval.choices]
        row["schema"] = None if schema is None else dict(schema)
        self._connection.execute(insert(approvals), row)

    def store_decision(self, approval: Approval) -> None:
        """Store the decision of a pending approval. Raises `Conflict` if it is not pending."""
        names = ("state", "edited", "reason", "always", "decided_by", "decided_at")
        row = model_to_row(approval)
        pending = (approvals.c.id == approval.id, approvals.c.state == ApprovalState.PENDING)
        updated = self._connection.execute(
            update(approvals).where(*pending).values({name: row[name] for name in names})
        )
        if not updated.rowcount:
            raise Conflict(f"approval {approval.id} is decided already")

    def pending_approvals(self) -> list[Approval]:
        return self.list_pending_approvals(self._connection, self.session.id)

    @staticmethod
    def list_pending_approvals(connection: Connection, session_id: str) -> list[Approval]:
        """Return pending approvals, oldest first."""
        pending = (approvals.c.session == session_id, approvals.c.state == ApprovalState.PENDING)
        rows = connection.execute(select(approvals).where(*pending).order_by(approvals.c.created_at, approvals.c.id))
        return [approval_from_row(row) for row in rows.mappings()]

    # The session

    def update_session(self, **changes: Any) -> None:
        self.session = SessionStore.update_session(self._connection, self.session.id, changes, self.now)

    def change_state(self, state: SessionState) -> None:
        if self.session.state is not state:
            self.update_session(state=state)
            self.emit(SessionStateChanged(state=state))

    def leave_waiting_state(self) -> None:
        """Leave the waiting state if no approval is pending."""
        if self.session.state is SessionState.WAITING and not SessionStore.has_pending_approvals(
            self._connection, self.session.id
        ):
            self.change_state(SessionState.RUNNING if self._turn_is_open() else SessionState.IDLE)

    def _turn_is_open(self) -> bool:
        newest = select(events.c.type, events.c.data).where(
            events.c.stream == session_stream_name(self.session.id),
            events.c.type.in_([EventType.TURN_STARTED, EventType.TURN_ENDED]),
        )
        row = self._connection.execute(newest.order_by(events.c.number.desc()).limit(1)).first()
        return row is None or row.type != EventType.TURN_ENDED or row.data.get("state") not in _END_STATES

    def _call_conditions(self, call_id: str) -> tuple[Any, Any]:
        return session_calls.c.session == self.session.id, session_calls.c.id == call_id


def approval_from_row(row: RowMapping) -> Approval:
    return row_to_model(Approval, {name: value for name, value in row.items() if name != "schema"})


def ledger_call_from_row(row: RowMapping) -> LedgerCall:
    call_fields = ("id", "name", "arguments", "malformed", "digest")
    call = {name: row[name] for name in ("id", "name", "arguments", "malformed")}
    return row_to_model(
        LedgerCall, {name: value for name, value in row.items() if name not in call_fields} | {"call": call}
    )
