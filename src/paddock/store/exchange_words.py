"""Full-text search in exchanges.

The index is SQLite's own and holds no text. `exchange_words` has what it was told, packed, because it can only be made
to forget what it is told again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, func, select

from paddock.store.database import Store
from paddock.store.exchange_turns import path
from paddock.store.tables import exchange_words, exchanges

_CREATE = """
    CREATE VIRTUAL TABLE IF NOT EXISTS exchange_search
    USING fts5(said, content='', columnsize=0, tokenize='unicode61 remove_diacritics 2')
"""


class Unread(NamedTuple):
    """An exchange that search does not know yet."""

    number: int
    row: Any
    """All its columns."""
    messages: Sequence[bytes]
    """Those that are new, packed, and the one before them."""


class WordStore:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def open(self) -> None:
        """Make the index if there is none. Raises `Unavailable`."""
        await self._store.write(lambda connection: connection.exec_driver_sql(_CREATE).close())

    async def unread(self, limit: int) -> Sequence[Unread]:
        """The oldest that are not indexed. They are indexed in the order of their numbers."""
        newest = select(func.coalesce(func.max(exchange_words.c.number), 0)).scalar_subquery()
        statement = select(exchanges).where(exchanges.c.number > newest).order_by(exchanges.c.number).limit(limit)

        def work(connection: Connection) -> Sequence[Unread]:
            return [
                Unread(row.number, row, path(connection, row.thread, row.fresh) if row.fresh else ())
                for row in connection.execute(statement).all()
            ]

        return await self._store.read(work)

    async def add(self, said: Sequence[tuple[int, str, bytes]]) -> None:
        """Index exchanges: number, words, and the words packed."""

        def work(connection: Connection) -> None:
            alive = set(
                connection.execute(
                    select(exchanges.c.number).where(exchanges.c.number.in_([number for number, _, _ in said]))
                ).scalars()
            )
            there = [entry for entry in said if entry[0] in alive]
            if not there:
                return
            connection.exec_driver_sql(
                "INSERT INTO exchange_words (number, said) VALUES (?, ?)",
                [(number, packed) for number, _, packed in there],
            )
            words = [(number, text) for number, text, _ in there if text]
            if words:
                connection.exec_driver_sql("INSERT INTO exchange_search (rowid, said) VALUES (?, ?)", words)

        await self._store.write(work)


def forget(connection: Connection, numbers: Sequence[int], unpack: Callable[[bytes], bytes]) -> None:
    """Take exchanges out of the index."""
    known = exchange_words.c.number.in_(list(numbers))
    for row in connection.execute(select(exchange_words).where(known)).all():
        text = unpack(row.said).decode()
        if text:
            connection.exec_driver_sql(
                "INSERT INTO exchange_search (exchange_search, rowid, said) VALUES ('delete', ?, ?)",
                (row.number, text),
            )
    connection.execute(exchange_words.delete().where(known))
