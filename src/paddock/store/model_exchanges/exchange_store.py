"""Named queries about exchanges with models.

Messages are stored once, and conversations as a tree of turns (`exchange_turns`). An exchange points to the last turn
of its conversation, so another turn of a long conversation adds only a few rows.
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
from paddock.model.exchanges import (
    ConversationTree,
    ExchangeFilters,
    ExchangePosition,
    ExchangeSummary,
    NewExchange,
    SharedExchangeContent,
    StoredExchange,
    StoredExchangeAnswer,
)
from paddock.store.database import Store
from paddock.store.model_exchanges.exchange_search import UnindexedExchange, remove_from_search_index
from paddock.store.model_exchanges.message_tree import (
    delete_unreferenced_turn,
    find_child_turn,
    find_turn_ancestors,
    list_messages_to_turn,
)
from paddock.store.tables import exchange_messages, exchanges
from paddock.store.visibility import visible_exchange_conditions

_NAMES = [field.name for field in fields(ExchangeSummary)]
_SUMMARY = [exchanges.c[name] for name in _NAMES]
_FLAGS = (_NAMES.index("stream"), _NAMES.index("estimated"))
_NOTES = _NAMES.index("notes")
_COLUMNS = [*_NAMES, "subject", "prompt", "thread", "fresh", "response"]
# Binding None or bytes is ten times slower in the driver than text, numbers and byte arrays, so missing values arrive
# as empty text or -1 and become NULL here.
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
    """Exchanges, messages and the tree of turns; the only writer of these tables."""

    def __init__(
        self, store: Store, pack: Callable[[bytes], bytes], words_of: Callable[[UnindexedExchange], str]
    ) -> None:
        self._store = store
        self._pack = pack
        self._words_of = words_of
        # Both belong to the store's write thread; only `was_stored_recently` reads them elsewhere and may be stale.
        self._messages: dict[bytes, int] = {}
        self._turns: dict[int, int] = {}
        self._removals = 0

    def was_stored_recently(self, digest: bytes) -> bool:
        """Return whether a message was stored recently; only a hint."""
        return digest in self._messages

    def submit(self, batch: Sequence[NewExchange]) -> Future[None]:
        """Queue exchanges to be written in one transaction. Existing exchanges are left unchanged.

        Fails with `Unavailable` for disk errors and with another error for an invalid exchange.
        """
        new_ids: tuple[dict[bytes, int], dict[int, int]] = ({}, {})
        removals = -1

        def work(connection: Connection) -> None:
            nonlocal new_ids, removals
            removals = self._removals
            try:
                new_ids = self._write(connection, batch)
            except (DataError, ProgrammingError, InterfaceError) as error:
                raise ValueError(str(error.orig)) from error

        def done(future: Future[None]) -> None:
            # In the write thread, after the commit; other work may have removed rows in between.
            if not future.cancelled() and future.exception() is None and removals == self._removals:
                _remember(self._messages, new_ids[0])
                _remember(self._turns, new_ids[1])

        future = self._store.submit(work)
        future.add_done_callback(done)
        return future

    def _write(self, connection: Connection, batch: Sequence[NewExchange]) -> tuple[dict[bytes, int], dict[int, int]]:
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
                    # Children of a new turn are new.
                    if known is None and parent < first and message < new:
                        known = find_child_turn(connection, parent, message)
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

    def _store_messages(
        self, connection: Connection, pieces: Mapping[bytes, SharedExchangeContent]
    ) -> tuple[dict[bytes, int], int]:
        """Return the ids of messages, and the first new id."""
        ids = {}
        missing = []
        for digest in pieces:
            known = self._messages.get(digest)
            if known is None:
                missing.append(digest)
            else:
                ids[digest] = known
        for start in range(0, len(missing), _AT_ONCE):
            batch = missing[start : start + _AT_ONCE]
            placeholders = ", ".join("?" * len(batch))
            found = connection.exec_driver_sql(
                f"SELECT digest, id FROM exchange_messages WHERE digest IN ({placeholders})",  # noqa: S608
                tuple(batch),
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

    async def get(self, tenant: str, exchange_id: str) -> StoredExchange:
        """Return the object. Raises `NotFound`, also for another tenant's."""
        statement = select(exchanges).where(exchanges.c.id == exchange_id, *visible_exchange_conditions(tenant))

        def work(connection: Connection) -> StoredExchange:
            row = connection.execute(statement).first()
            if row is None:
                raise NotFound(f"There is no exchange {exchange_id}.")
            return exchange_from_row(connection, row)

        return await self._store.read(work)

    async def list(
        self,
        tenant: str,
        filters: ExchangeFilters,
        *,
        match: str | None = None,
        before: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> Sequence[ExchangeSummary]:
        """Return matching exchanges, newest first; with `after`, oldest first."""
        conditions = _matching(tenant, filters, match)
        if before is not None:
            conditions.append(exchanges.c.id < before)
        if after is not None:
            conditions.append(exchanges.c.id > after)
        order = exchanges.c.id.desc() if after is None else exchanges.c.id
        statement = select(*_SUMMARY).where(*conditions).order_by(order).limit(limit)
        return await self._store.read(
            lambda connection: [exchange_summary_from_row(row) for row in connection.execute(statement)]
        )

    async def written_after(self, number: int, tenant: str | None, limit: int) -> tuple[Sequence[ExchangeSummary], int]:
        """Return a tenant's exchanges in order of writing, and the newest number of all tenants."""
        conditions = (exchanges.c.number > number, *visible_exchange_conditions(tenant))
        statement = select(*_SUMMARY).where(*conditions).order_by(exchanges.c.number).limit(limit)

        def work(connection: Connection) -> tuple[Sequence[ExchangeSummary], int]:
            found = [exchange_summary_from_row(row) for row in connection.execute(statement)]
            return found, _sequence(connection) - 1

        return await self._store.read(work)

    async def read_turn_tree(
        self,
        tenant: str,
        filters: ExchangeFilters,
        *,
        match: str | None = None,
        after: str | None = None,
        limit: int = 5000,
    ) -> ConversationTree:
        """Return the oldest matching exchanges after one, with their turns and messages.

        Oversized conversations are truncated to their newest turns.
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

        def work(connection: Connection) -> ConversationTree:
            positions = [
                ExchangePosition(exchange_summary_from_row(row), row.prompt, row.thread)
                for row in connection.execute(statement)
            ]
            turns = _turns(connection, positions)
            while len(turns) > _MOST_TURNS and len(positions) > 1:
                positions = positions[len(positions) // 2 :]
                turns = _turns(connection, positions)
            wanted = sorted({message for _, message in turns.values()})
            bodies: dict[int, bytes] = {}
            for start in range(0, len(wanted), _AT_ONCE):
                batch_condition = exchange_messages.c.id.in_(wanted[start : start + _AT_ONCE])
                found = connection.execute(
                    select(exchange_messages.c.id, exchange_messages.c.body).where(batch_condition)
                )
                bodies.update((row.id, row.body) for row in found)
            return ConversationTree(positions, turns, bodies)

        return await self._store.read(work)

    async def list_sandboxes_and_keys(
        self, tenant: str, filters: ExchangeFilters, match: str | None
    ) -> Sequence[tuple[str, str | None, str]]:
        """Return sandboxes and keys of matching exchanges, ordered by their oldest exchange."""
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

    async def read_responses(self, tenant: str, numbers: Sequence[int]) -> Mapping[int, bytes]:
        """Return compressed responses by exchange number, without deleted exchanges."""

        def work(connection: Connection) -> Mapping[int, bytes]:
            statement = select(exchanges.c.number, exchanges.c.response).where(
                exchanges.c.number.in_(numbers), *visible_exchange_conditions(tenant)
            )
            return {row.number: row.response for row in connection.execute(statement)}

        return await self._store.read(work)

    async def read_answers(
        self, tenant: str, key_id: str, ids: Sequence[str], max_bytes: int
    ) -> tuple[Sequence[StoredExchangeAnswer], int]:
        """Return complete answers to a key by exchange id, and how many of the first ids were looked up.

        Stops when the answers have `max_bytes` together, but not before the first, and after a bounded number of ids.
        """
        columns = (exchanges.c.id, exchanges.c.stream, exchanges.c.response_size)
        conditions = (exchanges.c.key_id == key_id, exchanges.c.outcome == "ok", *visible_exchange_conditions(tenant))
        batch = ids[:_AT_ONCE]

        def work(connection: Connection) -> tuple[Sequence[StoredExchangeAnswer], int]:
            known = {
                row.id: row
                for row in connection.execute(select(*columns).where(exchanges.c.id.in_(batch), *conditions))
            }
            found: list[StoredExchangeAnswer] = []
            size = 0
            for index, each in enumerate(batch):
                row = known.get(each)
                if row is None:
                    continue
                size += row.response_size
                if found and size > max_bytes:
                    return found, index
                statement = select(exchanges.c.response).where(exchanges.c.id == each, *conditions)
                response = connection.execute(statement).scalar()
                if response is not None:
                    found.append(StoredExchangeAnswer(row.id, bool(row.stream), row.response_size, response))
            return found, len(batch)

        return await self._store.read(work)

    async def list_tenants(self) -> Sequence[str]:
        """Return the tenants that have exchanges."""

        def work(connection: Connection) -> Sequence[str]:
            found: list[str] = []
            # Each step is one index lookup; DISTINCT would scan the whole index.
            least = select(func.min(exchanges.c.tenant))
            name = connection.execute(least).scalar()
            while name is not None:
                found.append(name)
                name = connection.execute(least.where(exchanges.c.tenant > name)).scalar()
            return found

        return await self._store.read(work)

    async def list_numbers(self, tenant: str, filters: ExchangeFilters, match: str | None, limit: int) -> Sequence[int]:
        """Return numbers of the oldest matching exchanges."""
        statement = (
            select(exchanges.c.number).where(*_matching(tenant, filters, match)).order_by(exchanges.c.id).limit(limit)
        )
        return await self._store.read(lambda connection: list(connection.execute(statement).scalars()))

    async def check_writable(self) -> None:
        """Probe that writing works. Raises `Unavailable` if it does not."""

        def put(connection: Connection) -> None:
            mark = {"id": _PROBE, "digest": b"probe", "body": bytes(65536)}
            connection.execute(exchange_messages.insert().prefix_with("OR REPLACE"), mark)

        def take(connection: Connection) -> None:
            connection.execute(exchange_messages.delete().where(exchange_messages.c.id == _PROBE))

        await self._store.write(put)
        await self._store.write(take)

    async def remove(self, numbers: Sequence[int]) -> int:
        """Delete exchanges and unshared messages; return the number of exchanges."""

        def work(connection: Connection) -> int:
            self._removals += 1
            self._messages.clear()
            self._turns.clear()
            remove_from_search_index(connection, numbers, self._words_of)
            wanted = exchanges.c.number.in_(list(numbers))
            leaves = connection.execute(select(exchanges.c.prompt, exchanges.c.thread).where(wanted)).all()
            removed = connection.execute(exchanges.delete().where(wanted)).rowcount
            for row in leaves:
                delete_unreferenced_turn(connection, row.prompt)
                delete_unreferenced_turn(connection, row.thread)
            return removed

        return await self._store.write(work)


def _turns(connection: Connection, positions: Sequence[ExchangePosition]) -> dict[int, tuple[int, int]]:
    leaves = {turn for position in positions for turn in (position.prompt, position.thread)}
    return find_turn_ancestors(connection, leaves, _MOST_TURNS + 1)


def exchange_summary_from_row(row: Any) -> ExchangeSummary:
    values = list(row[: len(_NAMES)])
    for index in _FLAGS:
        values[index] = bool(values[index])
    values[_NOTES] = json.loads(values[_NOTES]) if values[_NOTES] else ()
    return ExchangeSummary(*values)


def exchange_from_row(connection: Connection, row: Any) -> StoredExchange:
    return StoredExchange(
        exchange_summary_from_row(row),
        list_messages_to_turn(connection, row.prompt),
        list_messages_to_turn(connection, row.thread),
        row.response,
        row.fresh,
    )


def _matching(tenant: str, filters: ExchangeFilters, match: str | None) -> list[ColumnElement[bool]]:
    conditions = visible_exchange_conditions(tenant)
    for name in ("number", "sandbox", "run", "session", "user", "provider", "conversation", "outcome", "status"):
        value = getattr(filters, name)
        if value is not None:
            conditions.append(exchanges.c[name] == value)
    if filters.key is not None:
        conditions.append(exchanges.c.key_id == filters.key)
    if filters.model is not None:
        conditions.append(or_(exchanges.c.model == filters.model, exchanges.c.provider_model == filters.model))
    if filters.since is not None:
        conditions.append(exchanges.c.id >= smallest_exchange_id_at(filters.since))
    if filters.until is not None:
        conditions.append(exchanges.c.id < smallest_exchange_id_at(filters.until))
    if match is not None:
        found = text("number IN (SELECT rowid FROM exchange_search WHERE exchange_search MATCH :match)")
        conditions.append(found.bindparams(match=match))  # type: ignore[arg-type]
    return conditions


def smallest_exchange_id_at(moment: float) -> str:
    """Return the smallest exchange id of a time."""
    return f"ex-{max(0, min(int(moment * 1_000_000), (1 << 56) - 1)):014x}"


def _next(connection: Connection, table: str) -> int:
    newest = connection.exec_driver_sql(f"SELECT max(id) FROM {table} WHERE id < {_PROBE}").scalar()  # noqa: S608
    return int(newest or 0) + 1


def _sequence(connection: Connection) -> int:
    """Return the next unused number."""
    newest = connection.exec_driver_sql("SELECT seq FROM sqlite_sequence WHERE name = 'exchanges'").scalar()
    return int(newest or 0) + 1


def _remember(known: dict[Any, int], more: Mapping[Any, int]) -> None:
    known.update(more)
    if len(known) > _REMEMBERED:
        for old in _oldest(known, len(known) - _REMEMBERED // 2):
            del known[old]


def _oldest(known: Iterable[Any], count: int) -> list[Any]:
    return [key for key, _ in zip(known, range(count), strict=False)]
