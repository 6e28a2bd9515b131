"""Named queries about what was asked of models."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, or_, select
from sqlalchemy.dialects.sqlite import insert

from paddock.store.database import Store
from paddock.store.tables import usage

DIMENSIONS = ("tenant", "day", "key_id", "model", "provider", "sandbox")
"""What usage can be told apart by, in the order of a key."""
KEY_ID = DIMENSIONS.index("key_id")
Key = tuple[str, str, str, str, str, str]
"""A value of each; empty text where it is not known."""


@dataclass(slots=True)
class Tally:
    """Numbers that add up."""

    requests: int = 0
    errors: int = 0
    """Requests that got no whole answer, those that Paddock refused among them."""
    refused: int = 0
    input: int = 0
    """Tokens of prompts, those of caches included."""
    output: int = 0
    """Tokens of answers, those that were thought included."""
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    cost: float = 0.0
    """In US dollars, as far as it is known."""
    unpriced: int = 0
    """Requests that took tokens of which no price is known."""
    estimated: int = 0
    """Requests whose tokens are a guess."""

    def add(self, other: Tally) -> None:
        for name in NUMBERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))


NUMBERS = tuple(each.name for each in fields(Tally))
_SUMS = [func.coalesce(func.sum(usage.c[name]), 0).label(name) for name in NUMBERS]


class UsageStore:
    """The usage table. `llm.usage.Ledger` is what others use."""

    def __init__(self, store: Store) -> None:
        self._store = store
        added = insert(usage)
        self._add = added.on_conflict_do_update(
            index_elements=DIMENSIONS,
            set_={name: usage.c[name] + added.excluded[name] for name in NUMBERS}
            | {"subject": func.coalesce(usage.c.subject, added.excluded.subject)},
        )

    def add(self, tallies: Mapping[Key, Tally], subjects: Mapping[str, str]) -> Future[None]:
        """Queue numbers to be added to what is there, all or none of them; `subjects` are owners by ids of keys."""
        rows: list[dict[str, Any]] = [
            dict(zip(DIMENSIONS, key, strict=True))
            | {name: getattr(tally, name) for name in NUMBERS}
            | {"subject": subjects.get(key[KEY_ID])}
            for key, tally in tallies.items()
        ]

        def work(connection: Connection) -> None:
            connection.execute(self._add, rows)

        return self._store.submit(work)

    async def sums(
        self,
        by: Collection[str],
        values: Mapping[str, str],
        since: str | None = None,
        until: str | None = None,
        limit: int | None = None,
        *,
        subject: str | None = None,
    ) -> Sequence[tuple[tuple[str, ...], Tally]]:
        """Numbers added up by some dimensions, given in their order; `since` and `until` are days, both included.

        With a subject only what its keys used, and what is older than owners of keys.
        """
        columns = [usage.c[name] for name in DIMENSIONS if name in by]
        conditions: list[ColumnElement[bool]] = [usage.c[name] == value for name, value in values.items()]
        if subject is not None:
            conditions.append(or_(usage.c.subject == subject, usage.c.subject.is_(None)))
        if since is not None:
            conditions.append(usage.c.day >= since)
        if until is not None:
            conditions.append(usage.c.day <= until)
        statement = select(*columns, *_SUMS).where(*conditions).limit(limit)
        if columns:
            statement = statement.group_by(*columns)

        def work(connection: Connection) -> Sequence[tuple[tuple[str, ...], Tally]]:
            rows = connection.execute(statement)
            return [(tuple(row[: len(columns)]), Tally(*row[len(columns) :])) for row in rows]

        return await self._store.read(work)
