"""Named queries for whole sessions, as they are exported and imported: a page at a time, because they may be long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, delete, insert, select
from sqlalchemy.exc import IntegrityError

from paddock.errors import InvalidInput
from paddock.model.sessions import Approval, Call, CallRecord, Message
from paddock.store.database import Store, Work
from paddock.store.rows import to_model
from paddock.store.session_stream import stream_of
from paddock.store.sessions import SessionStore
from paddock.store.tables import approvals, events, session_calls

_asked = select(*(column for column in approvals.c if column.name in Approval.model_fields))
_MOMENTS = ("created_at", "changed_at", "expires_at", "decided_at")
_CALL = ("id", "name", "arguments", "malformed")


class BundleStore:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def calls(self, session_id: str, after: str, limit: int) -> Sequence[CallRecord]:
        """The ledger of a session, by id."""
        statement = (
            select(session_calls)
            .where(session_calls.c.session == session_id, session_calls.c.id > after)
            .order_by(session_calls.c.id)
            .limit(limit)
        )
        return await self._store.read(
            lambda connection: [_record(dict(row)) for row in connection.execute(statement).mappings()]
        )

    async def approvals(self, session_id: str, after: str, limit: int) -> Sequence[Approval]:
        """What was asked of people in a session, by id."""
        statement = (
            _asked.where(approvals.c.session == session_id, approvals.c.id > after)
            .order_by(approvals.c.id)
            .limit(limit)
        )
        return await self._store.read(
            lambda connection: [to_model(Approval, row) for row in connection.execute(statement).mappings()]
        )

    def keeping(self, tenant: str, rows: Sequence[Message | CallRecord | Approval]) -> Work[None]:
        """Keep what is of a session that is not there yet. Raises `InvalidInput` for what is there already."""

        def work(connection: Connection) -> None:
            for row in rows:
                if isinstance(row, Message):
                    SessionStore.keep(connection, row, tenant)
                    continue
                try:
                    _insert(connection, row)
                except IntegrityError:
                    raise InvalidInput("a call or an approval is in the bundle twice") from None

        return work

    @staticmethod
    def forget(connection: Connection, session_id: str) -> None:
        """Forget all that was kept of a session that was never there, its events too."""
        SessionStore.remove(connection, session_id)
        connection.execute(delete(events).where(events.c.stream == stream_of(session_id)))


def _insert(connection: Connection, row: CallRecord | Approval) -> None:
    if isinstance(row, Approval):
        connection.execute(insert(approvals), row.model_dump(mode="json") | _moments(row))
        return
    values = row.model_dump(mode="json", exclude={"call"}) | row.call.model_dump(mode="json") | _moments(row)
    connection.execute(insert(session_calls), values | {"digest": row.call.digest})


def _moments(model: CallRecord | Approval) -> dict[str, Any]:
    return {name: value for name in _MOMENTS if (value := getattr(model, name, None)) is not None}


def _record(row: dict[str, Any]) -> CallRecord:
    row.pop("digest")
    call = Call(**{name: row.pop(name) for name in _CALL})
    known = {name: row[name] for name in CallRecord.model_fields if name in row}
    return CallRecord.model_validate(known | {"call": call})
