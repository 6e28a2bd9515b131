"""Finds out which revision a server at an address speaks: the stateless one first, then sessions, then SSE."""

from __future__ import annotations

from paddock.errors import McpTimeout, PaddockError
from paddock.mcp.protocol import CallContext
from paddock.mcp.protocol.messages import (
    HEADER_MISMATCH,
    METHOD_NOT_FOUND,
    MISSING_CLIENT_CAPABILITY,
    UNSUPPORTED_VERSION,
    make_request,
)
from paddock.mcp.protocol.revisions import (
    DISCOVER,
    LEGACY_REVISIONS,
    STATELESS_REVISION,
)
from paddock.mcp.upstreams.call_clock import CallClock
from paddock.mcp.upstreams.http.http_answer import HttpRefused
from paddock.mcp.upstreams.http.http_channel import HttpChannel
from paddock.mcp.upstreams.http.http_peer import HttpPeer
from paddock.mcp.upstreams.http.sse_channel import SseChannel
from paddock.mcp.upstreams.http.stateless_http import ProbeAnswer, StatelessHttp
from paddock.mcp.upstreams.request_fields import RequestFields, error_code
from paddock.mcp.upstreams.response_cache import ResponseCache
from paddock.mcp.upstreams.sessions.session_handshake import DISCOVERY
from paddock.mcp.upstreams.sessions.session_pool import SessionPool

PROBE_SHARE = 0.5
"""Share of the start time that a server has to answer the probe; some ignore requests outside of sessions."""


async def detect_connection(
    peer: HttpPeer, cache: ResponseCache, fields: RequestFields, context: CallContext
) -> StatelessHttp | SessionPool:
    """Return a connection in the revision of the server. Raises `PaddockError`."""
    if peer.server.transport == "sse":
        return SessionPool(peer.server, lambda: SseChannel(peer), cache.on_notification)
    connection = StatelessHttp(peer)
    answer = await _probe(connection, peer, cache, context)
    if answer is not None and _is_stateless(answer):
        return connection
    if answer is not None and (answer.status in (401, 403) or 300 <= answer.status < 400) and answer.error is not None:
        raise answer.error
    pool = SessionPool(peer.server, lambda: HttpChannel(peer), cache.on_notification)
    try:
        await pool.connect(fields, context)
    except PaddockError as error:
        await pool.close()
        if answer is not None and answer.status == 404 and error_code_of(answer) == METHOD_NOT_FOUND:
            return connection  # It answers stateless requests, without discovery.
        if isinstance(error, HttpRefused) and error.status in (400, 404, 405):
            return await _try_event_stream(peer, cache, fields, context, error)
        raise
    return pool


def error_code_of(answer: ProbeAnswer) -> int | None:
    return None if answer.message is None else error_code(answer.message)


async def _probe(
    connection: StatelessHttp, peer: HttpPeer, cache: ResponseCache, context: CallContext
) -> ProbeAnswer | None:
    """Ask for the server's revisions; None if it does not answer."""
    request = make_request("paddock-discover", DISCOVER, DISCOVERY)
    clock = CallClock(peer.server, context, peer.server.timeouts.start * PROBE_SHARE)
    try:
        answer = await connection.probe(request, context, clock)
    except McpTimeout:
        return None
    slot = cache.slot(request, context)
    if slot is not None and answer.message is not None and _is_stateless(answer):
        cache.keep(slot, answer.message)
    return answer


def _is_stateless(answer: ProbeAnswer) -> bool:
    """Return whether the answer is one of the stateless revision."""
    if answer.message is None:
        return False
    versions = answer.message.result_object().get("supportedVersions")
    if isinstance(versions, list):
        return STATELESS_REVISION in versions or not any(each in LEGACY_REVISIONS for each in versions)
    code = error_code(answer.message)
    if code == UNSUPPORTED_VERSION:
        data = answer.message.error_object().get("data")
        supported = data.get("supported") if isinstance(data, dict) else None
        return not (isinstance(supported, list) and any(each in LEGACY_REVISIONS for each in supported))
    return code in (HEADER_MISMATCH, MISSING_CLIENT_CAPABILITY)


async def _try_event_stream(
    peer: HttpPeer, cache: ResponseCache, fields: RequestFields, context: CallContext, refusal: PaddockError
) -> SessionPool:
    """Connect by the transport of 2024-11-05. Raises the refusal of the newer one if that fails too."""
    pool = SessionPool(peer.server, lambda: SseChannel(peer), cache.on_notification)
    try:
        await pool.connect(fields, context)
    except PaddockError:
        await pool.close()
        raise refusal from None
    return pool
