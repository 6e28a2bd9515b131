"""The current schema, by subject. `migrations/` has its history."""

from __future__ import annotations

from paddock.store.tables.event_tables import events
from paddock.store.tables.exchange_tables import exchange_messages, exchange_turns, exchange_words, exchanges, usage
from paddock.store.tables.key_tables import keys, logins, tenants
from paddock.store.tables.mcp_tables import (
    mcp_calls,
    mcp_oauth_clients,
    mcp_oauth_tokens,
    mcp_servers,
    mcp_sets,
    mcp_tool_versions,
)
from paddock.store.tables.network_tables import network_byte_counts, network_connections
from paddock.store.tables.run_tables import runs
from paddock.store.tables.sandbox_tables import credential_vaults, pools, previews, sandboxes, snapshots
from paddock.store.tables.schema_basics import UtcTimestamp, metadata
from paddock.store.tables.session_tables import (
    approvals,
    checkpoint_writes,
    checkpoints,
    client_tools,
    engine_states,
    session_calls,
    session_messages,
    session_replies,
    sessions,
)

__all__ = [
    "UtcTimestamp",
    "approvals",
    "checkpoint_writes",
    "checkpoints",
    "client_tools",
    "credential_vaults",
    "engine_states",
    "events",
    "exchange_messages",
    "exchange_turns",
    "exchange_words",
    "exchanges",
    "keys",
    "logins",
    "mcp_calls",
    "mcp_oauth_clients",
    "mcp_oauth_tokens",
    "mcp_servers",
    "mcp_sets",
    "mcp_tool_versions",
    "metadata",
    "network_byte_counts",
    "network_connections",
    "pools",
    "previews",
    "runs",
    "sandboxes",
    "session_calls",
    "session_messages",
    "session_replies",
    "sessions",
    "snapshots",
    "tenants",
    "usage",
]
