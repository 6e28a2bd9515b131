"""Tenants, their API keys, and logins at the console."""

from __future__ import annotations

from sqlalchemy import Column, ForeignKey, Index, String, Table

from paddock.store.tables.schema_basics import UtcTimestamp, json_type, metadata

tenants = Table(
    "tenants",
    metadata,
    Column("name", String(63), primary_key=True),
    Column("created_at", UtcTimestamp, nullable=False),
)

keys = Table(
    "keys",
    metadata,
    Column("id", String(63), primary_key=True),
    Column("name", String(100), nullable=False),
    Column("tenant", String(63), ForeignKey("tenants.name"), nullable=False),
    Column("scopes", json_type, nullable=False),
    Column("prefix", String(32), nullable=False),
    Column("digest", String(64), nullable=False, unique=True),
    Column("created_at", UtcTimestamp, nullable=False),
    Column("expires_at", UtcTimestamp),
    Column("revoked_at", UtcTimestamp),
    Column("last_used_at", UtcTimestamp),
    Column("sandbox", String(100)),
    Column("run", String(100)),
    Column("session", String(100)),
    Column("user", String(100)),
    Column("models", json_type, nullable=False, server_default="[]"),
    Column("budget", json_type, nullable=False, server_default="{}"),
    Column("limits", json_type, nullable=False, server_default="{}"),
    Column("owner", String(110)),
    Index(None, "prefix"),
    Index(None, "tenant"),
    Index(None, "sandbox"),
)

logins = Table(
    "logins",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("key_id", String(63), nullable=False),
    Column("created_at", UtcTimestamp, nullable=False),
    Column("used_at", UtcTimestamp, nullable=False),
    Index(None, "key_id"),
)
