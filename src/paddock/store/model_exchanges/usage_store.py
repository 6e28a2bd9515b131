"""Named queries about model usage."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, or_, select
from sqlalchemy.dialects.sqlite import insert

from paddock.store.database import Store
from paddock.store.tables import usage

USAGE_DIMENSIONS = ("tenant", "day", "key_id", "model", "provider", "sandbox")
"""Dimensions of usage, in the order of the key."""
KEY_ID_POSITION = USAGE_DIMENSIONS.index("key_id")
UsageSumKey = tuple[str, str, str, str, str, str]
"""Value per dimension; empty text if unknown."""


@dataclass(slots=True)
class UsageTally:
    """Numbers that add up."""

    requests: int = 0
    errors: int = 0
    """Requests without a complete answer, including refused ones."""
    refused: int = 0
    input: int = 0
    """Prompt tokens, including cached ones."""
    output: int = 0
    """Answer tokens, including reasoning."""
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    cost: float = 0.0
    """US dollars, as far as known."""
    unpriced: int = 0
    """Requests with tokens of unknown price."""
    estimated: int = 0
    """Requests with estimated tokens."""

    def add(self, other: UsageTally) -> None:
        for name in USAGE_NUMBERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))


USAGE_NUMBERS = tuple(each.name for each in fields(UsageTally))
_SUMS = [func.coalesce(func.sum(usage.c[name]), 0).label(name) for name in USAGE_NUMBERS]


class UsageStore:
    """Usage table; other packages use the usage ledger of `llm.metering`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        added = insert(usage)
        self._add = added.on_conflict_do_update(
            index_elements=USAGE_DIMENSIONS,
            set_={name: usage.c[name] + added.excluded[name] for name in USAGE_NUMBERS}
            | {"subject": func.coalesce(usage.c.subject, added.excluded.subject)},
        )

    def add(self, tallies: Mapping[UsageSumKey, UsageTally], subjects: Mapping[str, str]) -> Future[None]:
        """Queue increments, written in one transaction; `subjects` are owners by key id."""
        rows: list[dict[str, Any]] = [
            dict(zip(USAGE_DIMENSIONS, key, strict=True))
            | {name: getattr(tally, name) for name in USAGE_NUMBERS}
            | {"subject": subjects.get(key[KEY_ID_POSITION])}
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
    ) -> Sequence[tuple[tuple[str, ...], UsageTally]]:
        """Return sums grouped by dimensions; `since` and `until` are inclusive days.

        With a subject, only usage of its keys, and usage recorded before keys had owners.
        """
        columns = [usage.c[name] for name in USAGE_DIMENSIONS if name in by]
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

        def work(connection: Connection) -> Sequence[tuple[tuple[str, ...], UsageTally]]:
            rows = connection.execute(statement)
            return [(tuple(row[: len(columns)]), UsageTally(*row[len(columns) :])) for row in rows]

        return await self._store.read(work)
