"""The current schema. `migrations/` has its history."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Dialect,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.types import TypeDecorator


class UtcTimestamp(TypeDecorator[datetime]):
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
    Column("created_at", UtcTimestamp, nullable=False),
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
    Column("created_at", UtcTimestamp, nullable=False),
    Column("expires_at", UtcTimestamp),
    Column("revoked_at", UtcTimestamp),
    Column("last_used_at", UtcTimestamp),
    Column("sandbox", String(100)),
    Column("run", String(100)),
    Column("session", String(100)),
    Column("user", String(100)),
    Column("models", _json, nullable=False, server_default="[]"),
    Column("budget", _json, nullable=False, server_default="{}"),
    Column("limits", _json, nullable=False, server_default="{}"),
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
    Column("entrypoint", _json),
    Column("env", _json, nullable=False),
    Column("metadata", _json, nullable=False),
    Column("extensions", _json, nullable=False),
    Column("limits", _json, nullable=False),
    Column("volumes", _json, nullable=False),
    Column("snapshot", String(63)),
    Column("pool", String(63)),
    Column("network", _json, nullable=False, server_default="[]"),
    Column("network_token", Text),
    Column("request_key", Text),
    Column("token", Text, nullable=False),
    Column("record", _json, nullable=False),
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
    Column("limits", _json, nullable=False),
    Column("user", String(16)),
    Column("created_at", UtcTimestamp, nullable=False),
)

events = Table(
    "events",
    metadata,
    Column("sequence", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("stream", String(128), nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("type", String(63), nullable=False),
    Column("tenant", String(63), nullable=False),
    Column("at", UtcTimestamp, nullable=False),
    Column("data", _json, nullable=False),
    Column("audience", String(110)),
    UniqueConstraint("stream", "number"),
    Index(None, "tenant", "sequence", "audience"),
    Index(None, "at"),
    sqlite_autoincrement=True,
)

_number = BigInteger().with_variant(Integer, "sqlite")
_is_set = {name: text(f"{name} IS NOT NULL") for name in ("sandbox", "run", "session")}

exchange_messages = Table(
    "exchange_messages",
    metadata,
    Column("id", _number, primary_key=True),
    Column("digest", LargeBinary(16), nullable=False, unique=True),
    Column("body", LargeBinary, nullable=False),
)
"""Messages, each stored once."""

exchange_turns = Table(
    "exchange_turns",
    metadata,
    Column("id", _number, primary_key=True),
    Column("parent", _number, nullable=False),
    Column("message", _number, nullable=False),
    UniqueConstraint("parent", "message"),
    Index(None, "message"),
)
"""Tree of turns. A turn stands for a conversation up to it, so a continued conversation adds only new turns."""

exchanges = Table(
    "exchanges",
    metadata,
    Column("number", _number, primary_key=True),
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
    Column("prompt", _number, nullable=False),
    Column("thread", _number, nullable=False),
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
    Column("number", _number, primary_key=True),
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

network_connections = Table(
    "network_connections",
    metadata,
    Column("number", _number, primary_key=True),
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

mcp_servers = Table(
    "mcp_servers",
    metadata,
    Column("tenant", String(63), primary_key=True),
    Column("name", String(63), primary_key=True),
    Column("document", _json, nullable=False),
    Column("created_by", Text),
    Column("created_at", UtcTimestamp, nullable=False),
    Column("changed_at", UtcTimestamp, nullable=False),
)
"""MCP servers that tenants added."""

mcp_sets = Table(
    "mcp_sets",
    metadata,
    Column("tenant", String(63), primary_key=True),
    Column("name", String(63), primary_key=True),
    Column("document", _json, nullable=False),
    Column("created_by", Text),
    Column("created_at", UtcTimestamp, nullable=False),
    Column("changed_at", UtcTimestamp, nullable=False),
)
"""Sets of MCP tools that tenants added."""

mcp_tool_versions = Table(
    "mcp_tool_versions",
    metadata,
    Column("tenant", String(63), primary_key=True),
    Column("server", String(63), primary_key=True),
    Column("tool", Text, primary_key=True),
    Column("digest", String(64), primary_key=True),
    Column("definition", _json, nullable=False),
    Column("approved", Boolean, nullable=False),
    Column("approved_by", Text),
    Column("seen_at", UtcTimestamp, nullable=False),
    Column("approved_at", UtcTimestamp),
)
"""Versions of tools that MCP servers offered."""

mcp_calls = Table(
    "mcp_calls",
    metadata,
    Column("number", _number, primary_key=True),
    Column("id", String(32), nullable=False, unique=True),
    Column("tenant", String(63), nullable=False),
    Column("caller", Text, nullable=False),
    Column("caller_name", Text),
    Column("agent", Text),
    Column("origin", String(16), nullable=False),
    Column("server", String(63), nullable=False),
    Column("method", String(64), nullable=False),
    Column("target", Text, nullable=False),
    Column("sandbox", String(63)),
    Column("run", String(63)),
    Column("session", String(63)),
    Column("started_at", UtcTimestamp, nullable=False),
    Column("duration", Double, nullable=False),
    Column("outcome", String(16), nullable=False),
    Column("error", Text),
    Column("arguments", Text, nullable=False),
    Column("result", Text, nullable=False),
    Column("request_size", BigInteger, nullable=False),
    Column("response_size", BigInteger, nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Index(None, "tenant", "number"),
    Index(None, "tenant", "server", "number"),
    Index(None, "run", "number", sqlite_where=text("run IS NOT NULL")),
    Index(None, "session", "number", sqlite_where=text("session IS NOT NULL")),
    Index(None, "sandbox", "number", sqlite_where=text("sandbox IS NOT NULL")),
    Index(None, "started_at"),
    sqlite_autoincrement=True,
)
"""Calls that passed the MCP gateway."""

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

mcp_oauth_tokens = Table(
    "mcp_oauth_tokens",
    metadata,
    Column("tenant", String(63), primary_key=True),
    Column("subject", String(110), primary_key=True),
    Column("server", String(63), primary_key=True),
    Column("url", Text, primary_key=True),
    Column("issuer", Text, nullable=False),
    Column("sealed", LargeBinary, nullable=False),
)
"""Tokens for MCP servers, encrypted with a key that is not in the database."""

mcp_oauth_clients = Table(
    "mcp_oauth_clients",
    metadata,
    Column("tenant", String(63), primary_key=True),
    Column("issuer", Text, primary_key=True),
    Column("redirect_uri", Text, primary_key=True),
    Column("sealed", LargeBinary, nullable=False),
)
"""Registrations at authorization servers of MCP servers, encrypted."""

credential_vaults = Table(
    "credential_vaults",
    metadata,
    Column("sandbox", String(63), primary_key=True),
    Column("sealed", LargeBinary, nullable=False),
)
"""Credential vaults of sandboxes, encrypted with a key that is not in the database."""

runs = Table(
    "runs",
    metadata,
    Column("id", String(63), primary_key=True),
    Column("tenant", String(63), nullable=False),
    Column("name", Text, nullable=False),
    Column("group", String(100)),
    Column("task", _json, nullable=False),
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
    Column("progress", _json, nullable=False),
    Column("result", _json),
    Column("subject", String(110)),
    Column("created_by", Text),
    Column("visibility", String(16), nullable=False, server_default="tenant"),
    Index(None, "tenant", "created_at", "subject", "visibility"),
    Index(None, "state", "created_at"),
    Index(None, "group"),
    UniqueConstraint("tenant", "request_key"),
)
"""Runs of tasks. Task name and concurrency have columns for scheduling."""

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
    Column("kinds", _json, nullable=False),
    Column("network", _json),
    Column("mcp", _json),
    Column("policy", _json, nullable=False),
    Column("budget", BigInteger),
    Column("state", String(32), nullable=False),
    Column("error", Text),
    Column("turn", Integer, nullable=False),
    Column("plan", _json, nullable=False),
    Column("usage", _json, nullable=False),
    Column("sandboxes", _json, nullable=False),
    Column("origin", _json),
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
    Column("position", _number, primary_key=True),
    Column("id", String(100), nullable=False),
    Column("session", String(63), nullable=False),
    Column("number", Integer, nullable=False),
    Column("turn", Integer, nullable=False),
    Column("role", String(16), nullable=False),
    Column("content", _json, nullable=False),
    Column("thought", Text, nullable=False),
    Column("calls", _json, nullable=False),
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
    Column("arguments", _json, nullable=False),
    Column("malformed", Text),
    Column("digest", String(64), nullable=False),
    Column("kind", String(63)),
    Column("tool", Text, nullable=False),
    Column("sandbox_id", String(63)),
    Column("state", String(16), nullable=False),
    Column("result", _json),
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
    Column("arguments", _json, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("question", Text, nullable=False),
    Column("choices", _json, nullable=False),
    Column("actions", _json, nullable=False),
    Column("state", String(16), nullable=False),
    Column("edited", _json),
    Column("reason", Text),
    Column("always", String(16)),
    Column("decided_by", Text),
    Column("created_at", UtcTimestamp, nullable=False),
    Column("expires_at", UtcTimestamp),
    Column("decided_at", UtcTimestamp),
    Column("schema", _json),
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
    Column("tools", _json, nullable=False),
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
