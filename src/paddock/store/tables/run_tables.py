"""Runs of tasks."""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Index, Integer, String, Table, Text, UniqueConstraint

from paddock.store.tables.schema_basics import UtcTimestamp, json_type, metadata

runs = Table(
    "runs",
    metadata,
    Column("id", String(63), primary_key=True),
    Column("tenant", String(63), nullable=False),
    Column("name", Text, nullable=False),
    Column("group", String(100)),
    Column("task", json_type, nullable=False),
    Column("task_name", String(63), nullable=False),
    Column("concurrency", Integer),
    Column("inputs", String(100)),
    Column("state", String(32), nullable=False),
    Column("stage", String(32), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("sandbox_id", String(63)),
    Column("model", Text),
    Column("scripted", Boolean, nullable=False),
    Column("request_key", Text),
    Column("owner", String(63)),
    Column("owned_until", UtcTimestamp),
    Column("cancelling", Text),
    Column("hard", Boolean, nullable=False),
    Column("not_before", UtcTimestamp),
    Column("created_at", UtcTimestamp, nullable=False),
    Column("changed_at", UtcTimestamp, nullable=False),
    Column("started_at", UtcTimestamp),
    Column("ended_at", UtcTimestamp),
    Column("progress", json_type, nullable=False),
    Column("result", json_type),
    Column("subject", String(110)),
    Column("created_by", Text),
    Column("visibility", String(16), nullable=False, server_default="tenant"),
    Index(None, "tenant", "created_at", "subject", "visibility"),
    Index(None, "state", "created_at"),
    Index(None, "group"),
    UniqueConstraint("tenant", "request_key"),
)
"""Runs of tasks. Task name and concurrency have columns for scheduling."""
