"""The schema as it is now. How it came to be is in `migrations/`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.types import TypeDecorator


class Instant(TypeDecorator[datetime]):
    """A moment in UTC as ISO text of fixed width, so that text order is time order on every database."""

    impl = String(32)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a moment needs a time zone")
        return value.astimezone(UTC).isoformat(timespec="microseconds")

    def process_result_value(self, value: Any | None, dialect: Dialect) -> datetime | None:
        return None if value is None else datetime.fromisoformat(value)


metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    }
)

_json = JSON(none_as_null=True)

tenants = Table(
    "tenants",
    metadata,
    Column("name", String(63), primary_key=True),
    Column("created_at", Instant, nullable=False),
)

keys = Table(
    "keys",
    metadata,
    Column("id", String(63), primary_key=True),
    Column("name", String(100), nullable=False),
    Column("tenant", String(63), ForeignKey("tenants.name"), nullable=False),
    Column("scopes", _json, nullable=False),
    Column("prefix", String(32), nullable=False),
    Column("digest", String(64), nullable=False, unique=True),
    Column("created_at", Instant, nullable=False),
    Column("expires_at", Instant),
    Column("revoked_at", Instant),
    Column("last_used_at", Instant),
    Index(None, "prefix"),
    Index(None, "tenant"),
)

sandboxes = Table(
    "sandboxes",
    metadata,
    Column("id", String(63), primary_key=True),
    Column("tenant", String(63), nullable=False),
    Column("backend", String(63), nullable=False),
    Column("image", Text, nullable=False),
    Column("state", String(32), nullable=False),
    Column("reason", Text),
    Column("message", Text),
    Column("created_at", Instant, nullable=False),
    Column("changed_at", Instant, nullable=False),
    Column("expires_at", Instant),
    Column("entrypoint", _json),
    Column("env", _json, nullable=False),
    Column("metadata", _json, nullable=False),
    Column("extensions", _json, nullable=False),
    Column("limits", _json, nullable=False),
    Column("volumes", _json, nullable=False),
    Column("snapshot", String(63)),
    Column("pool", String(63)),
    Column("network_default", Text),
    Column("request_key", Text),
    Column("token", Text, nullable=False),
    Column("record", _json, nullable=False),
    UniqueConstraint("tenant", "request_key"),
    Index(None, "tenant", "created_at"),
    Index(None, "state", "changed_at"),
    Index(None, "expires_at"),
)

snapshots = Table(
    "snapshots",
    metadata,
    Column("id", String(63), primary_key=True),
    Column("tenant", String(63), nullable=False),
    Column("backend", String(63), nullable=False),
    Column("sandbox_id", String(63), nullable=False),
    Column("image", Text, nullable=False),
    Column("name", Text),
    Column("state", String(32), nullable=False),
    Column("reason", Text),
    Column("message", Text),
    Column("created_at", Instant, nullable=False),
    Column("changed_at", Instant, nullable=False),
    Index(None, "tenant", "created_at"),
    Index(None, "sandbox_id"),
)

pools = Table(
    "pools",
    metadata,
    Column("tenant", String(63), primary_key=True),
    Column("name", String(63), primary_key=True),
    Column("image", Text, nullable=False),
    Column("size", Integer, nullable=False),
    Column("limits", _json, nullable=False),
    Column("created_at", Instant, nullable=False),
)

events = Table(
    "events",
    metadata,
    Column("sequence", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("stream", String(128), nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("type", String(63), nullable=False),
    Column("tenant", String(63), nullable=False),
    Column("at", Instant, nullable=False),
    Column("data", _json, nullable=False),
    UniqueConstraint("stream", "number"),
    Index(None, "tenant", "sequence"),
    Index(None, "at"),
    sqlite_autoincrement=True,
)
