"""Revisions of MCP. Before 2026-07-28 a client opens a session with `initialize`; since then each request stands alone.

The gateway works in the stateless form: `2026-07-28` is its own revision. Edges translate for peers of the older ones.
"""

from __future__ import annotations

LEGACY_REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Revisions with `initialize` and sessions, oldest first."""
LATEST_LEGACY_REVISION = LEGACY_REVISIONS[-1]
STATELESS_REVISION = "2026-07-28"
SUPPORTED_REVISIONS = (*LEGACY_REVISIONS, STATELESS_REVISION)

META_REVISION = "io.modelcontextprotocol/protocolVersion"
META_CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
META_CLIENT_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
META_LOG_LEVEL = "io.modelcontextprotocol/logLevel"
META_SERVER_INFO = "io.modelcontextprotocol/serverInfo"
META_SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
PROGRESS_TOKEN = "progressToken"  # noqa: S105

RESULT_TYPE = "resultType"
COMPLETE = "complete"
INPUT_REQUIRED = "input_required"

DISCOVER = "server/discover"
LISTEN = "subscriptions/listen"
