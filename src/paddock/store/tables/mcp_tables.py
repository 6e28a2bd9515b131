"""MCP servers and sets of tenants, versions of tools, calls and sign-ins."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Double, Index, LargeBinary, String, Table, Text, text

from paddock.store.tables.schema_basics import UtcTimestamp, json_type, metadata, row_number

mcp_servers = Table(
    "mcp_servers",
    metadata,
    Column("tenant", String(63), primary_key=True),
    Column("name", String(63), primary_key=True),
    Column("document", json_type, nullable=False),
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
    Column("document", json_type, nullable=False),
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
    Column("definition", json_type, nullable=False),
    Column("approved", Boolean, nullable=False),
    Column("approved_by", Text),
    Column("seen_at", UtcTimestamp, nullable=False),
    Column("approved_at", UtcTimestamp),
)
"""Versions of tools that MCP servers offered."""

mcp_calls = Table(
    "mcp_calls",
    metadata,
    Column("number", row_number, primary_key=True),
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
