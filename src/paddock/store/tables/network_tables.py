"""Connections of sandboxes to the network, and transferred bytes."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Double, Index, Integer, String, Table, Text

from paddock.store.tables.schema_basics import UtcTimestamp, metadata, row_number

network_connections = Table(
    "network_connections",
    metadata,
    Column("number", row_number, primary_key=True),
    Column("id", String(63), nullable=False, unique=True),
    Column("sandbox", String(63), nullable=False),
    Column("tenant", String(63), nullable=False),
    Column("run", String(63)),
    Column("session", String(63)),
    Column("started_at", UtcTimestamp, nullable=False),
    Column("duration", Double, nullable=False),
    Column("name", Text),
    Column("address", Text),
    Column("port", Integer, nullable=False),
    Column("server_name", Text),
    Column("sent", BigInteger, nullable=False),
    Column("received", BigInteger, nullable=False),
    Column("allowed", Boolean, nullable=False),
    Column("rule", Text),
    Column("refusal", String(32)),
    Column("message", Text),
    Index(None, "sandbox", "started_at", "id"),
    Index(None, "sandbox", "allowed", "started_at", "id"),
    Index(None, "started_at"),
)
"""Ended and refused connections of sandboxes to the network."""

network_byte_counts = Table(
    "network_byte_counts",
    metadata,
    Column("scope", String(16), primary_key=True),
    Column("owner", String(63), primary_key=True),
    Column("started_at", UtcTimestamp, nullable=False),
    Column("bytes", BigInteger, nullable=False),
)
"""Bytes that sandboxes and tenants have transferred since the start of their window of 24 hours."""
