"""Full-text search in exchanges.

The index is a contentless FTS5 table. Deleting an entry requires the indexed text, which is rebuilt from the exchange;
`exchange_words` holds its digest to verify that it is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, func, select

from paddock.store.database import Store
from paddock.store.model_exchanges.message_tree import list_messages_to_turn
from paddock.store.tables import exchange_words, exchanges

_CREATE = """
    CREATE VIRTUAL TABLE IF NOT EXISTS exchange_search
    USING fts5(text, content='', columnsize=0, tokenize='unicode61 remove_diacritics 2')
"""


class UnindexedExchange(NamedTuple):
    """Input of the index for one exchange."""

    number: int
    row: Any
    """All its columns."""
    messages: Sequence[bytes]
    """New messages, compressed, and the one before them."""


class ExchangeSearchStore:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def open(self) -> None:
        """Make the index if there is none. Raises `Unavailable`."""
        await self._store.write(lambda connection: connection.exec_driver_sql(_CREATE).close())

    async def list_unindexed(self, limit: int) -> Sequence[UnindexedExchange]:
        """Return the oldest exchanges that are not indexed yet."""
        newest = select(func.coalesce(func.max(exchange_words.c.number), 0)).scalar_subquery()
        statement = select(exchanges).where(exchanges.c.number > newest).order_by(exchanges.c.number).limit(limit)
        return await self._store.read(lambda connection: _read(connection, statement))

    async def add(self, texts_by_number: Sequence[tuple[int, str]]) -> None:
        """Index the words of exchanges by number."""
        numbers = [number for number, _ in texts_by_number]

        def work(connection: Connection) -> None:
            alive = set(connection.execute(select(exchanges.c.number).where(exchanges.c.number.in_(numbers))).scalars())
            existing = [entry for entry in texts_by_number if entry[0] in alive]
            if not existing:
                return
            connection.exec_driver_sql(
                "INSERT INTO exchange_words (number, digest) VALUES (?, ?)",
                [(number, _digest(text)) for number, text in existing],
            )
            words = [entry for entry in existing if entry[1]]
            if words:
                connection.exec_driver_sql("INSERT INTO exchange_search (rowid, text) VALUES (?, ?)", words)

        await self._store.write(work)


def remove_from_search_index(
    connection: Connection, numbers: Sequence[int], words_of: Callable[[UnindexedExchange], str]
) -> None:
    """Remove exchanges from the index. Call it before deleting them."""
    known = exchange_words.c.number.in_(list(numbers))
    digests = {row.number: row.digest for row in connection.execute(select(exchange_words).where(known))}
    indexed_texts = [(each.number, words_of(each)) for each in _read(connection, _select_exchanges(digests))]
    if any(_digest(text) != digests[number] for number, text in indexed_texts):
        # The text extraction changed since these were indexed; rebuild the index in small steps.
        connection.exec_driver_sql("DROP TABLE exchange_search")
        connection.exec_driver_sql(_CREATE)
        connection.execute(exchange_words.delete())
        return
    words = [entry for entry in indexed_texts if entry[1]]
    if words:
        connection.exec_driver_sql(
            "INSERT INTO exchange_search (exchange_search, rowid, text) VALUES ('delete', ?, ?)", words
        )
    connection.execute(exchange_words.delete().where(known))


def _select_exchanges(numbers: Iterable[int]) -> Select[Any]:
    return select(exchanges).where(exchanges.c.number.in_(list(numbers)))


def _read(connection: Connection, statement: Select[Any]) -> list[UnindexedExchange]:
    return [
        UnindexedExchange(
            row.number, row, list_messages_to_turn(connection, row.thread, row.fresh) if row.fresh else ()
        )
        for row in connection.execute(statement).all()
    ]


def _digest(text: str) -> bytes:
    return sha256(text.encode()).digest()[:16]
