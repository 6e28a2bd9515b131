"""Starts sessions: `initialize` for revisions that have sessions, and the probe that tells which revision it is."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Raw

from paddock.mcp.protocol import CallContext, JsonRpcMessage
from paddock.mcp.protocol.messages import make_notification
from paddock.mcp.protocol.revisions import (
    DISCOVER,
    LATEST_LEGACY_REVISION,
    LEGACY_REVISIONS,
    META_CLIENT_CAPABILITIES,
    META_CLIENT_INFO,
    META_REVISION,
    STATELESS_REVISION,
)
from paddock.mcp.upstreams.call_clock import CallClock
from paddock.mcp.upstreams.request_fields import RequestFields, raw_object
from paddock.mcp.upstreams.sessions.session_channel import SessionRefused
from paddock.mcp.upstreams.sessions.upstream_session import UpstreamSession

CLIENT_INFO: Mapping[str, str] = {"name": "paddock", "version": "1"}
DISCOVERY = {"_meta": {META_REVISION: STATELESS_REVISION, META_CLIENT_INFO: CLIENT_INFO, META_CLIENT_CAPABILITIES: {}}}
"""Parameters of the probe."""


async def initialize_session(
    session: UpstreamSession, fields: RequestFields, context: CallContext, clock: CallClock
) -> None:
    """Start a session with the client's name and capabilities. Raises `SessionRefused` and other `PaddockError`s."""
    name = session.server.name
    capabilities = raw_object(fields.meta.capabilities)
    params = {
        "protocolVersion": LATEST_LEGACY_REVISION,
        "capabilities": capabilities,
        "clientInfo": fields.meta.client_info if isinstance(fields.meta.client_info, Raw) else CLIENT_INFO,
    }
    response = await session.request_answer("initialize", params, context, clock)
    if isinstance(response.error, Raw):
        text = str(response.error_object().get("message"))[:200]
        raise SessionRefused(f"the MCP server {name} refuses to start a session: {text}")
    result = response.result_object()
    revision = result.get("protocolVersion")
    if revision not in LEGACY_REVISIONS:
        raise SessionRefused(f"the MCP server {name} speaks the unknown revision {str(revision)[:50]!r}")
    session.on_initialized(result, capabilities)
    session.channel.on_initialized(str(revision))
    await session.channel.send_other(make_notification("notifications/initialized", {}), context)


async def discover_revision(session: UpstreamSession, context: CallContext, clock: CallClock) -> JsonRpcMessage:
    """Ask for the server's revisions without a session, and return its response. Raises `PaddockError`."""
    return await session.request_answer(DISCOVER, DISCOVERY, context, clock)
