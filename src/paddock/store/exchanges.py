"""Named queries about exchanges with models.

Messages are stored once, and conversations as a tree of them (`exchange_turns`): an exchange points to the turn that
its conversation had come to, so one more turn of a long conversation takes a few rows however long it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import fields
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, or_, select, text
from sqlalchemy.exc import DataError, InterfaceError, ProgrammingError

from paddock.errors import NotFound
from paddock.model.exchanges import Filters, Fresh, Piece, Place, Stored, Summary, Tree
from paddock.store.database import Store
from paddock.store.exchange_turns import ancestors, find_turn, path, prune
from paddock.store.exchange_words import Unread, forget
from paddock.store.tables import exchange_messages, exchanges
from paddock.store.visible import visible_exchanges

_NAMES = [field.name for field in fields(Summary)]
_SUMMARY = [exchanges.c[name] for name in _NAMES]
_FLAGS = (_NAMES.index("stream"), _NAMES.index("estimated"))
_NOTES = _NAMES.index("notes")
_COLUMNS = [*_NAMES, "subject", "prompt", "thread", "fresh", "response"]
# Binding None or bytes costs the driver ten times what text, numbers and byte arrays do, so nothing is said as an empty
# text or -1 on the way, and becomes NULL here.
_NOTHING = {
    "''": "sandbox run session user conversation route provider provider_kind provider_model provider_format error"
    " notes preview subject",
    "-1": "input output cache_read cache_write reasoning cost first_byte",
}
_VALUES = {name: f"nullif(?, {nothing})" for nothing, names in _NOTHING.items() for name in names.split()}
_INSERT = "INSERT INTO exchanges ({}) VALUES ({}) ON CONFLICT (tenant, id) DO NOTHING".format(  # noqa: S608
    ", ".join(f'"{name}"' for name in _COLUMNS), ", ".join(_VALUES.get(name, "?") for name in _COLUMNS)
)
_REMEMBERED = 8_000
_MOST_TURNS = 300_000
_AT_ONCE = 500
_PROBE = 1 << 62


class ExchangeStore:
    """Exchanges, their messages and the tree they form. The one writer of these tables in the process."""

    def __init__(self, store: Store, pack: Callable[[bytes], bytes], words_of: Callable[[Unread], str]) -> None:
        self._store = store
        self._pack = pack
        self._words_of = words_of
        # Both are read and changed in the store's write thread only, but for `knows`, which may be wrong.
        self._messages: dict[bytes, int] = {}
        self._turns: dict[int, int] = {}
        self._removals = 0

    def knows(self, digest: bytes) -> bool:
        """Whether a message was stored lately; a hint, because it may be removed at any moment."""
        return digest in self._messages

    def submit(self, batch: Sequence[Fresh]) -> Future[None]:
        """Queue exchanges to be written as one. An exchange that is there already is left as it is.

        Fails with `Unavailable` when the disk is to blame, and with another error when one of the exchanges is.
        """
        learnt: tuple[dict[bytes, int], dict[int, int]] = ({}, {})
        removals = -1

        def work(connection: Connection) -> None:
            nonlocal learnt, removals
            removals = self._removals
            try:
                learnt = self._write(connection, batch)
            except (DataError, ProgrammingError, InterfaceError) as error:
                raise ValueError(str(error.orig)) from error

        def done(future: Future[None]) -> None:
            # In the write thread and after the commit. Work that ran between may have removed what was learnt.
            if not future.cancelled() and future.exception() is None and removals == self._removals:
                _remember(self._messages, learnt[0])
                _remember(self._turns, learnt[1])

        future = self._store.submit(work)
        future.add_done_callback(done)
        return future

    def _write(self, connection: Connection, batch: Sequence[Fresh]) -> tuple[dict[bytes, int], dict[int, int]]:
        pieces = {piece.digest: piece for fresh in batch for chain in (fresh.prompt, fresh.thread) for piece in chain}
        messages, new = self._store_messages(connection, pieces)
        number = _sequence(connection)
        turns: dict[int, int] = {}
        turn_rows: list[tuple[int, int, int]] = []
        turn = first = _next(connection, "exchange_turns")
        rows = []
        for fresh in batch:
            leaves = []
            added = 0
            for chain in (fresh.prompt, fresh.thread):
                parent = added = 0
                for piece in chain:
                    message = messages[piece.digest]
                    key = parent << 40 | message
                    known = turns.get(key) or self._turns.get(key)
                    # What hangs on something new is new itself.
                    if known is None and parent < first and message < new:
                        known = find_turn(connection, parent, message)
                    if known is None:
                        known = turn
                        turn_rows.append((turn, parent, message))
                        turn += 1
                        added += 1
                    turns[key] = parent = known
                leaves.append(parent)
            rows.append((number, *fresh.row, *leaves, added, bytearray(fresh.response)))
            number += 1
        if turn_rows:
            connection.exec_driver_sql("INSERT INTO exchange_turns (id, parent, message) VALUES (?, ?, ?)", turn_rows)
        connection.exec_driver_sql(_INSERT, rows)
        return messages, turns

    def _store_messages(self, connection: Connection, pieces: Mapping[bytes, Piece]) -> tuple[dict[bytes, int], int]:
        """The ids of messages, and the first that is new."""
        ids = {}
        missing = []
        for digest in pieces:
            known = self._messages.get(digest)
            if known is None:
                missing.append(digest)
            else:
                ids[digest] = known
        for start in range(0, len(missing), _AT_ONCE):
            some = missing[start : start + _AT_ONCE]
            marks = ", ".join("?" * len(some))
            found = connection.exec_driver_sql(
                f"SELECT digest, id FROM exchange_messages WHERE digest IN ({marks})",  # noqa: S608
                tuple(some),
            )
            ids.update((bytes(digest), number) for digest, number in found)
        first = number = _next(connection, "exchange_messages")
        rows = []
        for digest in missing:
            if digest not in ids:
                piece = pieces[digest]
                rows.append((number, bytearray(digest), bytearray(piece.packed or self._pack(piece.raw))))
                ids[digest] = number
                number += 1
        if rows:
            connection.exec_driver_sql("INSERT INTO exchange_messages (id, digest, body) VALUES (?, ?, ?)", rows)
        return ids, first

    async def get(self, tenant: str, exchange_id: str) -> Stored:
        """Raises `NotFound`, also for what belongs to another tenant."""
        statement = select(exchanges).where(exchanges.c.id == exchange_id, *visible_exchanges(tenant))

        def work(connection: Connection) -> Stored:
            row = connection.execute(statement).first()
            if row is None:
                raise NotFound(f"There is no exchange {exchange_id}.")
            return stored(connection, row)

        return await self._store.read(work)

    async def list(
        self,
        tenant: str,
        filters: Filters,
        *,
        match: str | None = None,
        before: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> Sequence[Summary]:
        """Those that match, newest first; oldest first if they are to come after one."""
        conditions = _matching(tenant, filters, match)
        if before is not None:
            conditions.append(exchanges.c.id < before)
        if after is not None:
            conditions.append(exchanges.c.id > after)
        order = exchanges.c.id.desc() if after is None else exchanges.c.id
        statement = select(*_SUMMARY).where(*conditions).order_by(order).limit(limit)
        return await self._store.read(lambda connection: [to_summary(row) for row in connection.execute(statement)])

    async def written_after(self, number: int, tenant: str | None, limit: int) -> tuple[Sequence[Summary], int]:
        """A tenant's in the order of writing, and the newest number of any tenant's."""
        conditions = (exchanges.c.number > number, *visible_exchanges(tenant))
        statement = select(*_SUMMARY).where(*conditions).order_by(exchanges.c.number).limit(limit)

        def work(connection: Connection) -> tuple[Sequence[Summary], int]:
            found = [to_summary(row) for row in connection.execute(statement)]
            return found, _sequence(connection) - 1

        return await self._store.read(work)

    async def tree(
        self, tenant: str, filters: Filters, *, match: str | None = None, after: str | None = None, limit: int = 5000
    ) -> Tree:
        """The oldest exchanges that match, after one, with all turns and messages of theirs.

        Where that would be more than fits, as only somebody with a grudge would send, it is the newest of them.
        """
        conditions = _matching(tenant, filters, match)
        if after is not None:
            conditions.append(exchanges.c.id > after)
        statement = (
            select(*_SUMMARY, exchanges.c.prompt, exchanges.c.thread)
            .where(*conditions)
            .order_by(exchanges.c.id)
            .limit(limit)
        )

        def work(connection: Connection) -> Tree:
            places = [Place(to_summary(row), row.prompt, row.thread) for row in connection.execute(statement)]
            turns = _turns(connection, places)
            while len(turns) > _MOST_TURNS and len(places) > 1:
                places = places[len(places) // 2 :]
                turns = _turns(connection, places)
            wanted = sorted({message for _, message in turns.values()})
            bodies: dict[int, bytes] = {}
            for start in range(0, len(wanted), _AT_ONCE):
                some = exchange_messages.c.id.in_(wanted[start : start + _AT_ONCE])
                found = connection.execute(select(exchange_messages.c.id, exchange_messages.c.body).where(some))
                bodies.update((row.id, row.body) for row in found)
            return Tree(places, turns, bodies)

        return await self._store.read(work)

    async def groups(self, tenant: str, filters: Filters, match: str | None) -> Sequence[tuple[str, str | None, str]]:
        """The sandboxes and keys among those that match, each after its oldest exchange, the oldest first."""
        first = func.min(exchanges.c.id).label("first")
        statement = (
            select(first, exchanges.c.sandbox, exchanges.c.key_id)
            .where(*_matching(tenant, filters, match))
            .group_by(exchanges.c.sandbox, exchanges.c.key_id)
            .order_by(first)
        )
        return await self._store.read(
            lambda connection: [(row.first, row.sandbox, row.key_id) for row in connection.execute(statement)]
        )

    async def responses(self, tenant: str, numbers: Sequence[int]) -> Mapping[int, bytes]:
        """What was answered in some exchanges, packed, by their numbers; without those that were deleted."""

        def work(connection: Connection) -> Mapping[int, bytes]:
            statement = select(exchanges.c.number, exchanges.c.response).where(
                exchanges.c.number.in_(numbers), *visible_exchanges(tenant)
            )
            return {row.number: row.response for row in connection.execute(statement)}

        return await self._store.read(work)

    async def tenants(self) -> Sequence[str]:
        """Whose exchanges there are."""

        def work(connection: Connection) -> Sequence[str]:
            found: list[str] = []
            # Each step is one look into the index, where DISTINCT would read all of it.
            least = select(func.min(exchanges.c.tenant))
            name = connection.execute(least).scalar()
            while name is not None:
                found.append(name)
                name = connection.execute(least.where(exchanges.c.tenant > name)).scalar()
            return found

        return await self._store.read(work)

    async def ids(self, tenant: str, filters: Filters, match: str | None, limit: int) -> Sequence[int]:
        """Numbers of the oldest that match."""
        statement = (
            select(exchanges.c.number).where(*_matching(tenant, filters, match)).order_by(exchanges.c.id).limit(limit)
        )
        return await self._store.read(lambda connection: list(connection.execute(statement).scalars()))

    async def probe(self) -> None:
        """Write something and take it away again. Raises `Unavailable` if that cannot be done."""

        def put(connection: Connection) -> None:
            mark = {"id": _PROBE, "digest": b"probe", "body": bytes(65536)}
            connection.execute(exchange_messages.insert().prefix_with("OR REPLACE"), mark)

        def take(connection: Connection) -> None:
            connection.execute(exchange_messages.delete().where(exchange_messages.c.id == _PROBE))

        await self._store.write(put)
        await self._store.write(take)

    async def remove(self, numbers: Sequence[int]) -> int:
        """Forget exchanges, and what nobody else said. Says how many there were."""

        def work(connection: Connection) -> int:
            self._removals += 1
            self._messages.clear()
            self._turns.clear()
            forget(connection, numbers, self._words_of)
            wanted = exchanges.c.number.in_(list(numbers))
            leaves = connection.execute(select(exchanges.c.prompt, exchanges.c.thread).where(wanted)).all()
            removed = connection.execute(exchanges.delete().where(wanted)).rowcount
            for row in leaves:
                prune(connection, row.prompt)
                prune(connection, row.thread)
            return removed

        return await self._store.write(work)


def _turns(connection: Connection, places: Sequence[Place]) -> dict[int, tuple[int, int]]:
    leaves = {turn for place in places for turn in (place.prompt, place.thread)}
    return ancestors(connection, leaves, _MOST_TURNS + 1)


def to_summary(row: Any) -> Summary:
    values = list(row[: len(_NAMES)])
    for index in _FLAGS:
        values[index] = bool(values[index])
    values[_NOTES] = json.loads(values[_NOTES]) if values[_NOTES] else ()
    return Summary(*values)


def stored(connection: Connection, row: Any) -> Stored:
    return Stored(
        to_summary(row),
        path(connection, row.prompt),
        path(connection, row.thread),
        row.response,
        row.fresh,
    )


def _matching(tenant: str, filters: Filters, match: str | None) -> list[ColumnElement[bool]]:
    conditions = visible_exchanges(tenant)
    for name in ("number", "sandbox", "run", "session", "user", "provider", "conversation", "outcome", "status"):
        value = getattr(filters, name)
        if value is not None:
            conditions.append(exchanges.c[name] == value)
    if filters.key is not None:
        conditions.append(exchanges.c.key_id == filters.key)
    if filters.model is not None:
        conditions.append(or_(exchanges.c.model == filters.model, exchanges.c.provider_model == filters.model))
    if filters.since is not None:
        conditions.append(exchanges.c.id >= begun(filters.since))
    if filters.until is not None:
        conditions.append(exchanges.c.id < begun(filters.until))
    if match is not None:
        found = text("number IN (SELECT rowid FROM exchange_search WHERE exchange_search MATCH :match)")
        conditions.append(found.bindparams(match=match))  # type: ignore[arg-type]
    return conditions


def begun(moment: float) -> str:
    """The first id of that moment."""
    return f"ex-{max(0, min(int(moment * 1_000_000), (1 << 56) - 1)):014x}"


def _next(connection: Connection, table: str) -> int:
    newest = connection.exec_driver_sql(f"SELECT max(id) FROM {table} WHERE id < {_PROBE}").scalar()  # noqa: S608
    return int(newest or 0) + 1


def _sequence(connection: Connection) -> int:
    """The next number, which no exchange ever had."""
    newest = connection.exec_driver_sql("SELECT seq FROM sqlite_sequence WHERE name = 'exchanges'").scalar()
    return int(newest or 0) + 1


def _remember(known: dict[Any, int], more: Mapping[Any, int]) -> None:
    known.update(more)
    if len(known) > _REMEMBERED:
        for old in _oldest(known, len(known) - _REMEMBERED // 2):
            del known[old]


def _oldest(known: Iterable[Any], count: int) -> list[Any]:
    return [key for key, _ in zip(known, range(count), strict=False)]
