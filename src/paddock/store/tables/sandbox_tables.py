"""Sandboxes, their snapshots and pools, previews of ports and credential vaults."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Index, Integer, LargeBinary, String, Table, Text, UniqueConstraint

from paddock.store.tables.schema_basics import UtcTimestamp, json_type, metadata

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
    Column("created_at", UtcTimestamp, nullable=False),
    Column("changed_at", UtcTimestamp, nullable=False),
    Column("expires_at", UtcTimestamp),
    Column("entrypoint", json_type),
    Column("env", json_type, nullable=False),
    Column("metadata", json_type, nullable=False),
    Column("extensions", json_type, nullable=False),
    Column("limits", json_type, nullable=False),
    Column("volumes", json_type, nullable=False),
    Column("snapshot", String(63)),
    Column("pool", String(63)),
    Column("network", json_type, nullable=False, server_default="[]"),
    Column("network_token", Text),
    Column("request_key", Text),
    Column("token", Text, nullable=False),
    Column("record", json_type, nullable=False),
    Column("subject", String(110)),
    Column("created_by", Text),
    Column("visibility", String(16), nullable=False, server_default="tenant"),
    UniqueConstraint("tenant", "request_key"),
    Index(None, "tenant", "created_at", "subject", "visibility"),
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
    Column("created_at", UtcTimestamp, nullable=False),
    Column("changed_at", UtcTimestamp, nullable=False),
    Column("subject", String(110)),
    Column("created_by", Text),
    Column("visibility", String(16), nullable=False, server_default="tenant"),
    Index(None, "tenant", "created_at", "subject", "visibility"),
    Index(None, "sandbox_id"),
)

pools = Table(
    "pools",
    metadata,
    Column("tenant", String(63), primary_key=True),
    Column("name", String(63), primary_key=True),
    Column("image", Text, nullable=False),
    Column("kind", String(63)),
    Column("size", Integer, nullable=False),
    Column("max_total", Integer),
    Column("limits", json_type, nullable=False),
    Column("user", String(16)),
    Column("created_at", UtcTimestamp, nullable=False),
)

previews = Table(
    "previews",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("sandbox", String(63), nullable=False),
    Column("tenant", String(63), nullable=False),
    Column("port", Integer, nullable=False),
    Column("public", Boolean, nullable=False),
    Column("created_by", Text),
    Column("created_at", UtcTimestamp, nullable=False),
    Column("expires_at", UtcTimestamp, nullable=False),
    UniqueConstraint("sandbox", "port"),
)
"""Addresses under which browsers reach ports of sandboxes."""

credential_vaults = Table(
    "credential_vaults",
    metadata,
    Column("sandbox", String(63), primary_key=True),
    Column("sealed", LargeBinary, nullable=False),
)
"""Credential vaults of sandboxes, encrypted with a key that is not in the database."""
