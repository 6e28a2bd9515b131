"""Queries that export and import whole sessions, page by page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, delete, insert, select
from sqlalchemy.exc import IntegrityError

from paddock.errors import InvalidInput
from paddock.model.sessions import Approval, LedgerCall, SessionMessage, ToolCall
from paddock.store.chat_sessions.session_log_entries import session_stream_name
from paddock.store.chat_sessions.session_store import SessionStore
from paddock.store.database import Store, Work
from paddock.store.row_mapping import row_to_model
from paddock.store.tables import approvals, events, session_calls

_select_approvals = select(*(column for column in approvals.c if column.name in Approval.model_fields))
_TIME_FIELDS = ("created_at", "changed_at", "expires_at", "decided_at")
_CALL_FIELDS = ("id", "name", "arguments", "malformed")


class SessionBundleStore:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def list_calls(self, session_id: str, after: str, limit: int) -> Sequence[LedgerCall]:
        """Return a page of a session's ledger, by id."""
        statement = (
            select(session_calls)
            .where(session_calls.c.session == session_id, session_calls.c.id > after)
            .order_by(session_calls.c.id)
            .limit(limit)
        )
        return await self._store.read(
            lambda connection: [_ledger_call_from_row(dict(row)) for row in connection.execute(statement).mappings()]
        )

    async def list_approvals(self, session_id: str, after: str, limit: int) -> Sequence[Approval]:
        """Return a page of a session's approvals, by id."""
        statement = (
            _select_approvals.where(approvals.c.session == session_id, approvals.c.id > after)
            .order_by(approvals.c.id)
            .limit(limit)
        )
        return await self._store.read(
            lambda connection: [row_to_model(Approval, row) for row in connection.execute(statement).mappings()]
        )

    def insert_rows_work(self, tenant: str, rows: Sequence[SessionMessage | LedgerCall | Approval]) -> Work[None]:
        """Insert imported calls and approvals. Raises `InvalidInput` for duplicates."""

        def work(connection: Connection) -> None:
            for row in rows:
                if isinstance(row, SessionMessage):
                    SessionStore.store_message(connection, row, tenant)
                    continue
                try:
                    _insert(connection, row)
                except IntegrityError:
                    raise InvalidInput("a call or an approval is in the bundle twice") from None

        return work

    @staticmethod
    def delete_import(connection: Connection, session_id: str) -> None:
        """Delete everything stored for an import that failed, including events."""
        SessionStore.delete_session(connection, session_id)
        connection.execute(delete(events).where(events.c.stream == session_stream_name(session_id)))


def _insert(connection: Connection, row: LedgerCall | Approval) -> None:
    if isinstance(row, Approval):
        connection.execute(insert(approvals), row.model_dump(mode="json") | _time_values(row))
        return
    values = row.model_dump(mode="json", exclude={"call"}) | row.call.model_dump(mode="json") | _time_values(row)
    connection.execute(insert(session_calls), values | {"digest": row.call.digest})


def _time_values(model: LedgerCall | Approval) -> dict[str, Any]:
    return {name: value for name in _TIME_FIELDS if (value := getattr(model, name, None)) is not None}


def _ledger_call_from_row(row: dict[str, Any]) -> LedgerCall:
    row.pop("digest")
    call = ToolCall(**{name: row.pop(name) for name in _CALL_FIELDS})
    fields = {name: row[name] for name in LedgerCall.model_fields if name in row}
    return LedgerCall.model_validate(fields | {"call": call})
