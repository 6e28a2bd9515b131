"""Finds out which revision a server at an address speaks: the stateless one first, then sessions, then SSE."""

from __future__ import annotations

from paddock.errors import Unavailable
from paddock.mcp.protocol import CallContext
from paddock.mcp.protocol.messages import make_request
from paddock.mcp.protocol.revisions import (
    DISCOVER,
    META_CLIENT_CAPABILITIES,
    META_CLIENT_INFO,
    META_REVISION,
    STATELESS_REVISION,
)
from paddock.mcp.upstreams.call_clock import CallClock
from paddock.mcp.upstreams.http_peer import HttpPeer
from paddock.mcp.upstreams.response_cache import ResponseCache
from paddock.mcp.upstreams.stateless_http import StatelessHttp

CLIENT_INFO = {"name": "paddock", "version": "1"}


async def detect_connection(peer: HttpPeer, cache: ResponseCache, context: CallContext) -> StatelessHttp:
    """Return a connection in the revision of the server. Raises `PaddockError`."""
    connection = StatelessHttp(peer)
    clock = CallClock(peer.server, context, peer.server.timeouts.start)
    meta = {META_REVISION: STATELESS_REVISION, META_CLIENT_INFO: CLIENT_INFO, META_CLIENT_CAPABILITIES: {}}
    request = make_request("paddock-discover", DISCOVER, {"_meta": meta})
    answer = await connection.probe(request, context, clock)
    if answer.message is not None and answer.message.result_object().get("supportedVersions"):
        slot = cache.slot(request, context)
        if slot is not None:
            cache.keep(slot, answer.message)
        return connection
    if answer.error is not None:
        raise answer.error
    raise Unavailable(f"the MCP server {peer.server.name} speaks none of the known revisions")
