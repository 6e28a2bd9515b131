"""Chats with agents: messages, calls, approvals, replies and states of engines."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, String, Table, Text, UniqueConstraint

from paddock.store.tables.schema_basics import UtcTimestamp, json_type, metadata, row_number

sessions = Table(
    "sessions",
    metadata,
    Column("id", String(63), primary_key=True),
    Column("tenant", String(63), nullable=False),
    Column("title", Text, nullable=False),
    Column("agent", String(63), nullable=False),
    Column("engine", String(63), nullable=False),
    Column("model", Text, nullable=False),
    Column("instructions", Text, nullable=False),
    Column("kinds", json_type, nullable=False),
    Column("network", json_type),
    Column("mcp", json_type),
    Column("policy", json_type, nullable=False),
    Column("budget", BigInteger),
    Column("state", String(32), nullable=False),
    Column("error", Text),
    Column("turn", Integer, nullable=False),
    Column("plan", json_type, nullable=False),
    Column("usage", json_type, nullable=False),
    Column("sandboxes", json_type, nullable=False),
    Column("origin", json_type),
    Column("created_by", Text),
    Column("request_key", Text),
    Column("created_at", UtcTimestamp, nullable=False),
    Column("changed_at", UtcTimestamp, nullable=False),
    Column("subject", String(110)),
    Column("visibility", String(16), nullable=False, server_default="tenant"),
    UniqueConstraint("tenant", "request_key"),
    Index(None, "tenant", "changed_at", "subject", "visibility"),
    Index(None, "state"),
)
"""Chats with agents."""

session_messages = Table(
    "session_messages",
    metadata,
    Column("position", row_number, primary_key=True),
    Column("id", String(100), nullable=False),
    Column("session", String(63), nullable=False),
    Column("number", Integer, nullable=False),
    Column("turn", Integer, nullable=False),
    Column("role", String(16), nullable=False),
    Column("content", json_type, nullable=False),
    Column("thought", Text, nullable=False),
    Column("calls", json_type, nullable=False),
    Column("call_id", String(100)),
    Column("cut", Text),
    Column("by", Text),
    Column("at", UtcTimestamp, nullable=False),
    UniqueConstraint("session", "id"),
    UniqueConstraint("session", "number"),
    sqlite_autoincrement=True,
)

session_calls = Table(
    "session_calls",
    metadata,
    Column("session", String(63), primary_key=True),
    Column("id", String(100), primary_key=True),
    Column("turn", Integer, nullable=False),
    Column("name", Text, nullable=False),
    Column("arguments", json_type, nullable=False),
    Column("malformed", Text),
    Column("digest", String(64), nullable=False),
    Column("kind", String(63)),
    Column("tool", Text, nullable=False),
    Column("sandbox_id", String(63)),
    Column("state", String(16), nullable=False),
    Column("result", json_type),
    Column("created_at", UtcTimestamp, nullable=False),
    Column("changed_at", UtcTimestamp, nullable=False),
    Index(None, "session", "turn"),
)
"""Ledger of calls, which ensures that no call runs twice."""

approvals = Table(
    "approvals",
    metadata,
    Column("id", String(63), primary_key=True),
    Column("session", String(63), nullable=False),
    Column("tenant", String(63), nullable=False),
    Column("turn", Integer, nullable=False),
    Column("call_id", String(100), nullable=False),
    Column("type", String(16), nullable=False),
    Column("name", Text, nullable=False),
    Column("kind", String(63)),
    Column("arguments", json_type, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("question", Text, nullable=False),
    Column("choices", json_type, nullable=False),
    Column("actions", json_type, nullable=False),
    Column("state", String(16), nullable=False),
    Column("edited", json_type),
    Column("reason", Text),
    Column("always", String(16)),
    Column("decided_by", Text),
    Column("created_at", UtcTimestamp, nullable=False),
    Column("expires_at", UtcTimestamp),
    Column("decided_at", UtcTimestamp),
    Column("schema", json_type),
    UniqueConstraint("session", "call_id"),
    Index(None, "tenant", "state"),
    Index(None, "state", "expires_at"),
)

session_replies = Table(
    "session_replies",
    metadata,
    Column("session", String(63), primary_key=True),
    Column("turn", Integer, primary_key=True),
    Column("digest", String(64), primary_key=True),
    Column("message_id", String(100), nullable=False),
    Column("finish", String(32), nullable=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
)
"""Replies to model requests, by the digest of the request."""

engine_states = Table(
    "engine_states",
    metadata,
    Column("session", String(63), primary_key=True),
    Column("state", LargeBinary, nullable=False),
    Column("changed_at", UtcTimestamp, nullable=False),
)

client_tools = Table(
    "client_tools",
    metadata,
    Column("session", String(63), primary_key=True),
    Column("tools", json_type, nullable=False),
)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("thread", String(100), primary_key=True),
    Column("namespace", String(255), primary_key=True),
    Column("id", String(100), primary_key=True),
    Column("parent", String(100)),
    Column("type", String(32), nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("details", LargeBinary, nullable=False),
)
"""Checkpoints of LangGraph threads."""

checkpoint_writes = Table(
    "checkpoint_writes",
    metadata,
    Column("thread", String(100), primary_key=True),
    Column("namespace", String(255), primary_key=True),
    Column("checkpoint", String(100), primary_key=True),
    Column("task", String(100), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("channel", Text, nullable=False),
    Column("type", String(32), nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("path", Text, nullable=False),
)
