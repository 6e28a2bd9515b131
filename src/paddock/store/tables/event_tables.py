"""Events of all streams."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, String, Table, UniqueConstraint

from paddock.store.tables.schema_basics import UtcTimestamp, json_type, metadata, row_number

events = Table(
    "events",
    metadata,
    Column("sequence", row_number, primary_key=True),
    Column("stream", String(128), nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("type", String(63), nullable=False),
    Column("tenant", String(63), nullable=False),
    Column("at", UtcTimestamp, nullable=False),
    Column("data", json_type, nullable=False),
    Column("audience", String(110)),
    UniqueConstraint("stream", "number"),
    Index(None, "tenant", "sequence", "audience"),
    Index(None, "at"),
    sqlite_autoincrement=True,
)
