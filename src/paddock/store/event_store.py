"""Named queries about events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    ScalarSelect,
    Table,
    bindparam,
    case,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.sql.dml import ReturningInsert

from paddock.model.events import EventRecord, EventType
from paddock.model.owners import Visibility, private_subject_of_view
from paddock.store.database import Store, Work
from paddock.store.row_mapping import row_to_model
from paddock.store.tables import events, runs, sandboxes, sessions, snapshots

T = TypeVar("T")
_OWNED = {"sandbox": sandboxes, "run": runs, "session": sessions, "snapshot": snapshots}
"""Tables of the objects of streams, by prefix of the stream name."""
_LAST = [kind for kind in EventType if kind.ends_stream]


class StoredEventPage(NamedTuple):
    """Events in order, and the newest sequence number at the time of reading."""

    events: Sequence[EventRecord]
    newest: int


class NewEvent(NamedTuple):
    """An event to append."""

    stream: str
    type: EventType
    data: Mapping[str, Any]
    tenant: str
    at: datetime | None = None
    """Time of the event; default: time of recording."""
    audience: str | None = None
    """The only subject that sees it, for an object that is not stored yet."""


class EventStore:
    """Queries of the events table; other packages use `events.EventLog`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._append = {name: _appending(table) for name, table in _OWNED.items()}
        self._append_other = _appending(None)

    def append(
        self,
        stream: str,
        kind: EventType,
        data: Mapping[str, Any],
        tenant: str,
        on_stored: Callable[[EventRecord], None],
    ) -> Future[EventRecord]:
        """Queue one event. Once it is on disk `on_stored` is called with it, from the store's thread, in order."""

        def work(connection: Connection) -> EventRecord:
            return self._insert(connection, NewEvent(stream, kind, data, tenant))

        def done(finished: Future[EventRecord]) -> None:
            if not finished.cancelled() and finished.exception() is None:
                on_stored(finished.result())

        future = self._store.submit(work)
        future.add_done_callback(done)
        return future

    def submit_with_events(
        self,
        work: Work[T],
        events_of: Callable[[T], Sequence[NewEvent]],
        on_stored: Callable[[EventRecord], None],
        *,
        erases: str | None = None,
    ) -> Future[tuple[T, Sequence[EventRecord]]]:
        """Queue a unit of work and the events of its result, in one transaction.

        Of the stream `erases`, only the newest event stays.
        """

        def work_with_events(connection: Connection) -> tuple[T, Sequence[EventRecord]]:
            result = work(connection)
            stored = [self._insert(connection, each) for each in events_of(result)]
            if erases is not None:
                newest = select(func.max(events.c.number)).where(events.c.stream == erases).scalar_subquery()
                connection.execute(delete(events).where(events.c.stream == erases, events.c.number < newest))
            return result, stored

        def done(finished: Future[tuple[T, Sequence[EventRecord]]]) -> None:
            if not finished.cancelled() and finished.exception() is None:
                for event in finished.result()[1]:
                    on_stored(event)

        future = self._store.submit(work_with_events)
        future.add_done_callback(done)
        return future

    def _insert(self, connection: Connection, event: NewEvent) -> EventRecord:
        values = {
            "stream": event.stream,
            "type": event.type,
            "tenant": str(event.tenant),
            "at": event.at or datetime.now(UTC),
            "data": dict(event.data),
        }
        kind, _, of_object = event.stream.partition("/")
        object_parameters = {"of_stream": event.stream, "of_object": of_object, "otherwise": event.audience}
        appending = self._append.get(kind, self._append_other)
        sequence, number, audience = connection.execute(appending, values | object_parameters).one()
        return EventRecord(sequence=sequence, number=number, audience=audience, **values)

    async def read(self, stream: str | None, after: int, limit: int, tenant: str | None = None) -> StoredEventPage:
        """Return events of one stream after a number, or of all streams after a sequence number."""
        cursor_column = events.c.sequence if stream is None else events.c.number
        conditions: list[ColumnElement[bool]] = [cursor_column > after]
        if stream is not None:
            conditions.append(events.c.stream == stream)
        if tenant is not None:
            conditions.append(events.c.tenant == str(tenant))
        subject = private_subject_of_view(tenant)
        if subject is not None:
            conditions.append(or_(events.c.audience.is_(None), events.c.audience == subject))
        statement = select(events).where(*conditions).order_by(cursor_column).limit(limit)

        def work(connection: Connection) -> StoredEventPage:
            found = [row_to_model(EventRecord, row) for row in connection.execute(statement).mappings()]
            return StoredEventPage(found, _newest(connection))

        return await self._store.read(work)

    async def end(self, stream: str) -> int:
        """Return the number of the newest event of a stream, 0 if there is none."""
        statement = select(func.coalesce(func.max(events.c.number), 0)).where(events.c.stream == stream)
        return await self._store.read(lambda connection: int(connection.execute(statement).scalar_one()))

    async def newest(self) -> int:
        """Return the sequence number of the newest event, 0 if there is none."""
        return await self._store.read(_newest)

    async def prune(self, before: datetime) -> int:
        """Delete events older than `before`; return their number.

        The newest event of an open stream stays, because the next one is numbered after it.
        """
        newer = events.alias()
        newest = select(func.max(newer.c.number)).where(newer.c.stream == events.c.stream).scalar_subquery()
        statement = delete(events).where(events.c.at < before, (events.c.number != newest) | events.c.type.in_(_LAST))
        return await self._store.write(lambda connection: connection.execute(statement).rowcount)


def work_with_new_audience(work: Work[T], streams: Sequence[str], audience: str | None) -> Work[T]:
    """Return work that also restricts the events of some streams to one subject, or opens them to the tenant."""

    def work_with_audience(connection: Connection) -> T:
        result = work(connection)
        connection.execute(update(events).where(events.c.stream.in_(streams)).values(audience=audience))
        return result

    return work_with_audience


def _appending(table: Table | None) -> ReturningInsert[Any]:
    """Insert an event with the next number of its stream and its object's audience.

    Events of a deleted object have the audience of the stream's last event.
    """
    stream: BindParameter[str] = bindparam("of_stream")
    object_id: BindParameter[str] = bindparam("of_object")
    number = select(func.coalesce(func.max(events.c.number), 0) + 1).where(events.c.stream == stream)
    last = select(events.c.audience).where(events.c.stream == stream).order_by(events.c.number.desc()).limit(1)
    audience: ColumnElement[str | None] = func.coalesce(last.scalar_subquery(), bindparam("otherwise"))
    if table is not None:
        private = case((table.c.visibility == Visibility.PRIVATE, table.c.subject), else_=None)
        now: ScalarSelect[str | None] = select(private).where(table.c.id == object_id).scalar_subquery()
        audience = case((exists().where(table.c.id == object_id), now), else_=audience)
    inserting = insert(events).values(number=number.scalar_subquery(), audience=audience)
    return inserting.returning(events.c.sequence, events.c.number, events.c.audience)


def _newest(connection: Connection) -> int:
    return int(connection.execute(select(func.coalesce(func.max(events.c.sequence), 0))).scalar_one())
