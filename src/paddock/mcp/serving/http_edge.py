"""The HTTP edge: answers requests of MCP clients of both eras, independent of the HTTP server in use.

Requests with the metadata of revision 2026-07-28 stand alone. `initialize` opens a session of an older revision. Both
can be used at one address at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec

from paddock.errors import InvalidInput, PaddockError
from paddock.mcp.protocol.headers import REVISION_HEADER, SESSION_HEADER
from paddock.mcp.protocol.messages import INVALID_REQUEST, PARSE_ERROR, JsonRpcMessage, decode_message
from paddock.mcp.protocol.revisions import LEGACY_REVISIONS, META_REVISION, STATELESS_REVISION
from paddock.mcp.serving.client_sessions import IDLE_TIME, MAX_SESSIONS, ClientSessions
from paddock.mcp.serving.event_streams import STREAM_SUFFIX, EventStreamRequests, event_stream_path
from paddock.mcp.serving.header_checks import unsupported_revision
from paddock.mcp.serving.http_messages import JSON_TYPE, McpHttpReply, McpHttpRequest, Refusal, failure_reply
from paddock.mcp.serving.session_request_handler import Resolver, SessionRequestHandler
from paddock.mcp.serving.session_streams import StreamTimes
from paddock.mcp.serving.stateless_request_handler import StatelessRequestHandler
from paddock.mcp.serving.tool_headers import ToolHeaders

MAX_REQUEST_SIZE = 16 * 2**20
METHODS = ("GET", "POST", "DELETE")
_REVISION_HEADER = REVISION_HEADER.lower()
_SESSION_HEADER = SESSION_HEADER.lower()
_META_REVISION = META_REVISION.encode()
OriginCheck: TypeAlias = Callable[[Mapping[str, str]], bool]
"""Returns whether a request with these headers, of a web page perhaps, may be answered."""


def refuse_origins(headers: Mapping[str, str]) -> bool:
    """Refuse all requests of web pages: only browsers send an origin."""
    return "origin" not in headers


class McpHttpEdge:
    """Answers requests to endpoints. One for all callers of a server, or one for each sandbox."""

    def __init__(
        self,
        resolve: Resolver,
        *,
        allows_origin: OriginCheck = refuse_origins,
        times: StreamTimes | None = None,
        max_sessions: int = MAX_SESSIONS,
        idle_time: float = IDLE_TIME,
    ) -> None:
        self.resolve = resolve
        self._allows_origin = allows_origin
        self.sessions = ClientSessions(max_sessions, idle_time)
        self._stateless = StatelessRequestHandler(ToolHeaders())
        times = times or StreamTimes()
        self._sessioned = SessionRequestHandler(resolve, self.sessions, times)
        self._event_streams = EventStreamRequests(resolve, self.sessions, self._sessioned, times)

    async def handle(self, request: McpHttpRequest) -> McpHttpReply:
        """Answer one request; errors are replies."""
        message: JsonRpcMessage | None = None
        try:
            if not self._allows_origin(request.headers):
                raise Refusal(403, INVALID_REQUEST, "Web pages may not call MCP servers here.")
            if (found := event_stream_path(request.path)) is not None:
                server, suffix = found
                if suffix == STREAM_SUFFIX:
                    return await self._event_streams.open(request, server)
                session = self._event_streams.find(request, server)
                message = self._message(request)
                return await self._event_streams.accept(session, request, server, message)
            if request.method == "POST":
                message = self._message(request)
                return await self._post(request, message)
            return await self._without_body(request)
        except Refusal as refusal:
            return refusal.reply()
        except PaddockError as error:
            return failure_reply(error, message.request_id if message is not None and message.is_request else None)

    def end_subscriptions(self) -> None:
        """End subscriptions and streams for changes, which would delay the end of a server; calls may finish."""
        self._stateless.end_subscriptions()
        self.sessions.end_listeners()

    async def close(self) -> None:
        """End all sessions."""
        await self.sessions.close()

    async def _post(self, request: McpHttpRequest, message: JsonRpcMessage) -> McpHttpReply:
        if _is_stateless(request, message):
            if message.is_request:
                endpoint = self.resolve(request.path, request.context)
                return await self._stateless.answer(request, message, endpoint)
            if message.is_response:
                raise Refusal(400, INVALID_REQUEST, "a client of this revision sends no responses")
            if (revision := request.headers.get(_REVISION_HEADER, "")) != STATELESS_REVISION:
                raise unsupported_revision(revision, None)
            return McpHttpReply(202)  # Cancelling is closing the response; nothing else is sent by notifications.
        if message.method == "initialize" and message.is_request and _SESSION_HEADER not in request.headers:
            return await self._sessioned.initialize(request, message)
        return await self._sessioned.answer(request, message)

    async def _without_body(self, request: McpHttpRequest) -> McpHttpReply:
        is_of_session = _SESSION_HEADER in request.headers
        if is_of_session and request.method == "GET":
            return await self._sessioned.open_stream(request)
        if is_of_session and request.method == "DELETE":
            return await self._sessioned.delete(request)
        self.resolve(request.path, request.context)  # An unknown server is reported first.
        allowed = METHODS if request.method not in METHODS else ("POST",)
        refusal = Refusal(405, INVALID_REQUEST, f"{request.method} is not used here without {SESSION_HEADER}")
        refusal.headers["allow"] = ", ".join(allowed)
        raise refusal

    def _message(self, request: McpHttpRequest) -> JsonRpcMessage:
        content_type = request.headers.get("content-type", JSON_TYPE).partition(";")[0].strip().lower()
        if content_type != JSON_TYPE:
            raise Refusal(415, INVALID_REQUEST, f"the body must be {JSON_TYPE}")
        try:
            return decode_message(request.body)
        except InvalidInput as error:
            raise _unreadable(request.body, error) from None


def _is_stateless(request: McpHttpRequest, message: JsonRpcMessage) -> bool:
    """Return whether a message is of revision 2026-07-28 or a later one, by its header or by its metadata."""
    revision = request.headers.get(_REVISION_HEADER)
    if revision == STATELESS_REVISION:
        return True
    if _SESSION_HEADER in request.headers:
        return False
    if revision is not None and revision not in LEGACY_REVISIONS:
        return message.method != "initialize"
    return _META_REVISION in bytes(message.params or b"")


def _unreadable(body: bytes, error: InvalidInput) -> Refusal:
    try:
        value = msgspec.json.decode(body.decode())
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return Refusal(400, PARSE_ERROR, "Parse error: the body is not JSON in UTF-8")
    if isinstance(value, list):
        text = "batches are not supported; send each message in a request of its own"
        return Refusal(400, INVALID_REQUEST, text)
    found = value.get("id") if isinstance(value, dict) else None
    message_id = found if isinstance(found, (int, str)) and not isinstance(found, bool) else None
    return Refusal(400, INVALID_REQUEST, error.message, message_id=message_id)
