"""Model exchanges with their messages, and sums of model usage."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from paddock.store.tables.schema_basics import metadata, row_number

_is_set = {name: text(f"{name} IS NOT NULL") for name in ("sandbox", "run", "session")}

exchange_messages = Table(
    "exchange_messages",
    metadata,
    Column("id", row_number, primary_key=True),
    Column("digest", LargeBinary(16), nullable=False, unique=True),
    Column("body", LargeBinary, nullable=False),
)
"""Messages, each stored once."""

exchange_turns = Table(
    "exchange_turns",
    metadata,
    Column("id", row_number, primary_key=True),
    Column("parent", row_number, nullable=False),
    Column("message", row_number, nullable=False),
    UniqueConstraint("parent", "message"),
    Index(None, "message"),
)
"""Tree of turns. A turn stands for a conversation up to it, so a continued conversation adds only new turns."""

exchanges = Table(
    "exchanges",
    metadata,
    Column("number", row_number, primary_key=True),
    Column("id", String(63), nullable=False),
    Column("tenant", String(63), nullable=False),
    Column("key_id", String(100), nullable=False),
    Column("sandbox", String(100)),
    Column("run", String(100)),
    Column("session", String(100)),
    Column("user", String(100)),
    Column("at", Double, nullable=False),
    Column("format", String(32), nullable=False),
    Column("operation", String(32), nullable=False),
    Column("model", Text, nullable=False),
    Column("stream", Integer, nullable=False),
    Column("client", Text, nullable=False),
    Column("conversation", Text),
    Column("route", Text),
    Column("provider", Text),
    Column("provider_kind", String(32)),
    Column("provider_model", Text),
    Column("provider_format", String(32)),
    Column("status", Integer, nullable=False),
    Column("outcome", String(32), nullable=False),
    Column("error", Text),
    Column("input", BigInteger),
    Column("output", BigInteger),
    Column("cache_read", BigInteger),
    Column("cache_write", BigInteger),
    Column("reasoning", BigInteger),
    Column("estimated", Integer, nullable=False),
    Column("cost", Double),
    Column("first_byte", Double),
    Column("total", Double, nullable=False),
    Column("retries", Integer, nullable=False),
    Column("notes", Text),
    Column("request_size", BigInteger, nullable=False),
    Column("response_size", BigInteger, nullable=False),
    Column("preview", Text),
    Column("prompt", row_number, nullable=False),
    Column("thread", row_number, nullable=False),
    Column("fresh", Integer, nullable=False),
    Column("response", LargeBinary, nullable=False),
    Column("subject", String(110)),
    UniqueConstraint("tenant", "id"),
    Index("ix_exchanges_visible", "tenant", "id", "subject", "session", "run", "sandbox"),
    Index(None, "sandbox", "id", sqlite_where=_is_set["sandbox"]),
    Index(None, "run", "id", sqlite_where=_is_set["run"]),
    Index(None, "session", "id", sqlite_where=_is_set["session"]),
    Index(None, "prompt"),
    Index(None, "thread"),
    sqlite_autoincrement=True,
)

exchange_words = Table(
    "exchange_words",
    metadata,
    Column("number", row_number, primary_key=True),
    Column("digest", LargeBinary(16), nullable=False),
)
"""Digest of the indexed text of each exchange."""

usage = Table(
    "usage",
    metadata,
    Column("tenant", String(63), primary_key=True),
    Column("day", String(10), primary_key=True),
    Column("key_id", String(100), primary_key=True),
    Column("model", String(200), primary_key=True),
    Column("provider", String(63), primary_key=True),
    Column("sandbox", String(100), primary_key=True),
    Column("requests", BigInteger, nullable=False),
    Column("errors", BigInteger, nullable=False),
    Column("refused", BigInteger, nullable=False),
    Column("input", BigInteger, nullable=False),
    Column("output", BigInteger, nullable=False),
    Column("cache_read", BigInteger, nullable=False),
    Column("cache_write", BigInteger, nullable=False),
    Column("reasoning", BigInteger, nullable=False),
    Column("cost", Double, nullable=False),
    Column("unpriced", BigInteger, nullable=False),
    Column("estimated", BigInteger, nullable=False),
    Column("subject", String(110)),
    Index(None, "key_id"),
)
"""Sums of model usage. Empty text stands for unknown values."""
