"""Requests of clients of revisions with sessions: 2025-11-25 and before, over streamable HTTP."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from msgspec import Raw

from paddock.errors import InvalidInput, PaddockError
from paddock.mcp.protocol.endpoint import CallContext, McpEndpoint
from paddock.mcp.protocol.headers import REVISION_HEADER, SESSION_HEADER
from paddock.mcp.protocol.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    LEGACY_REQUEST_TIMEOUT,
    METHOD_NOT_FOUND,
    JsonRpcMessage,
    decode_raw_fields,
    decode_value,
    encode_value,
    make_error,
    make_request,
    make_result,
)
from paddock.mcp.protocol.revisions import DISCOVER, LATEST_LEGACY_REVISION, LEGACY_REVISIONS
from paddock.mcp.serving.client_sessions import ClientSession, ClientSessions, owner_of
from paddock.mcp.serving.http_messages import (
    EVENT_STREAM_HEADERS,
    McpHttpReply,
    McpHttpRequest,
    Refusal,
    json_reply,
    status_for_failure,
)
from paddock.mcp.serving.legacy_translation import LOG_LEVELS, initialize_result, negotiate_revision, stateless_meta
from paddock.mcp.serving.running_exchange import RunningExchange
from paddock.mcp.serving.session_calls import SessionCall
from paddock.mcp.serving.session_listener import SessionListener
from paddock.mcp.serving.session_streams import SessionEvents, SessionStream, StreamTimes, parse_event_id

MAX_CALLS = 128
"""Requests of a session under way."""
MAX_SUBSCRIBED_URIS = 1000
MAX_URI_LENGTH = 4096
MAX_DECLARED_SIZE = 64 * 2**10
"""Bytes of what a client declares about itself, which its session keeps."""
SUBSCRIBE_TIMEOUT = 5.0
Resolver: TypeAlias = Callable[[str, CallContext], McpEndpoint]
"""Returns the endpoint at a path for a caller. Raises `NotFound` and `Forbidden`."""


class SessionRequestHandler:
    """Keeps the sessions of clients and answers their requests in the stateless form."""

    def __init__(self, resolve: Resolver, sessions: ClientSessions, times: StreamTimes) -> None:
        self._resolve = resolve
        self._sessions = sessions
        self._times = times

    async def initialize(self, request: McpHttpRequest, message: JsonRpcMessage) -> McpHttpReply:
        """Open a session. Raises `Refusal` and `PaddockError`."""
        session = new_session(request, message)
        response, failure = await self.discover(session, request, message)
        if failure is not None:
            return json_reply(response, status_for_failure(failure))
        if response.error:
            return json_reply(response)
        await self._sessions.add(session)
        return json_reply(response, 200, {SESSION_HEADER.lower(): session.id})

    async def discover(
        self, session: ClientSession, request: McpHttpRequest, message: JsonRpcMessage
    ) -> tuple[JsonRpcMessage, PaddockError | None]:
        """Return the response of `initialize`, and the failure if there is one."""
        context = replace(request.context, client_session=session.id)
        meta = stateless_meta(session.capabilities, session.client_info, None)
        discovery = make_request(message.request_id, DISCOVER, {"_meta": meta})
        exchange = RunningExchange(
            self._resolve(request.path, context).exchange(discovery, context), message.request_id
        )
        try:
            while (response := await exchange.next_message(None)) is None or not response.is_response:
                pass
        finally:
            await exchange.close()
        if exchange.failure is not None or response.error:
            return response, exchange.failure
        result = initialize_result(response, session.revision)
        declared = decode_value(encode_value(result["capabilities"]))
        session.server_capabilities = declared if isinstance(declared, dict) else {}
        return make_result(message.request_id, result), None

    async def answer(self, request: McpHttpRequest, message: JsonRpcMessage) -> McpHttpReply:
        """Answer a message of a session. Raises `Refusal` and `PaddockError`."""
        session = self._session(request, message)
        if message.is_response:
            take_answer(session, message)
            return McpHttpReply(202)
        if message.is_notification:
            await handle_notification(session, message)
            return McpHttpReply(202)
        if message.request_id in session.calls:
            text = f"the id {message.request_id!r:.100} is of a request under way; use each id once"
            raise Refusal(400, INVALID_REQUEST, text, message_id=message.request_id)
        if (own := await own_answer(session, message)) is not None:
            return json_reply(own, 200)
        if len(session.calls) >= MAX_CALLS:
            return json_reply(
                make_error(message.request_id, INTERNAL_ERROR, f"the session has {MAX_CALLS} requests under way"), 429
            )
        return await self._forward(request, session, message)

    async def open_stream(self, request: McpHttpRequest) -> McpHttpReply:
        """Open the stream of a session for changes, or resume an earlier stream. Raises `Refusal`."""
        session = self._session(request, None)
        if not request.accepts_events():
            raise Refusal(406, INVALID_REQUEST, "GET needs Accept: text/event-stream")
        last_event = request.headers.get("last-event-id")
        stream = self.listener(request, session) if last_event is None else self._resumed(session, last_event)
        if isinstance(stream, SessionListener):
            stream.start()
        headers = {**EVENT_STREAM_HEADERS, SESSION_HEADER.lower(): session.id}
        events = SessionEvents(stream, session.revision, resumed=last_event is not None)
        return McpHttpReply(200, headers, stream=events)

    async def delete(self, request: McpHttpRequest) -> McpHttpReply:
        """End a session. Raises `Refusal`."""
        await self._sessions.end(self._session(request, None))
        return McpHttpReply(200)

    def _session(self, request: McpHttpRequest, message: JsonRpcMessage | None) -> ClientSession:
        message_id = message.id if message is not None and isinstance(message.id, (int, str)) else None
        sent = request.headers.get(SESSION_HEADER.lower())
        if sent is None:
            text = f"send initialize first, and the header {SESSION_HEADER} of its response with each request"
            raise Refusal(400, INVALID_REQUEST, text, message_id=message_id)
        revision = request.headers.get(REVISION_HEADER.lower())
        if revision is not None and revision not in LEGACY_REVISIONS:
            text = f"{REVISION_HEADER} {revision[:50]!r} is not the revision of a session"
            raise Refusal(400, INVALID_REQUEST, text, message_id=message_id)
        session = self._sessions.find(sent, request.path, request.context)
        if session is None:
            text = "Session not found: it has ended, or it belongs to another client; send initialize again"
            raise Refusal(404, LEGACY_REQUEST_TIMEOUT, text, message_id=message_id)
        return session

    async def _forward(self, request: McpHttpRequest, session: ClientSession, message: JsonRpcMessage) -> McpHttpReply:
        endpoint = self._resolve(request.path, replace(request.context, client_session=session.id))
        can_stream = request.accepts_events()
        call = SessionCall(session, message, endpoint, request.context, self._times, can_stream=can_stream)
        can_resume = session.revision == LATEST_LEGACY_REVISION
        wait = self._times.first_message_resumable if can_resume else self._times.first_message
        try:
            first = await call.first_message(wait if can_stream else None)
            while not can_stream and first is not None and not first.is_response:
                first = await call.first_message(None)
        except BaseException:
            # The client has no event from which it could continue.
            await call.close()
            call.forget()
            raise
        if first is not None and first.is_response:
            call.forget()
            return json_reply(first, 200)
        if first is not None:
            call.buffer.rewind(0)
        return McpHttpReply(200, EVENT_STREAM_HEADERS, stream=SessionEvents(call, session.revision))

    def listener(self, request: McpHttpRequest, session: ClientSession) -> SessionListener:
        """Return the stream of a session for changes."""
        if session.listener is None:
            path, context = request.path, replace(request.context, client_session=session.id)
            session.listener = SessionListener(session, lambda: self._resolve(path, context), context, self._times)
        return session.listener

    def _resumed(self, session: ClientSession, last_event: str) -> SessionStream:
        position = parse_event_id(last_event)
        stream: SessionStream | None = None
        if position is not None:
            stream = session.listener if position[0] == 0 else session.streams.get(position[0])
        if stream is None or position is None or not stream.buffer.rewind(position[1]):
            raise Refusal(400, INVALID_REQUEST, "the events after this Last-Event-ID are no longer kept")
        return stream


def new_session(request: McpHttpRequest, message: JsonRpcMessage) -> ClientSession:
    """Return a session as `initialize` asks for it. Raises `Refusal`."""
    try:
        fields = decode_raw_fields(message.params)
        capabilities = fields.get("capabilities", encode_value({}))
        decode_raw_fields(capabilities)
        revision = negotiate_revision(decode_value(fields["protocolVersion"]))
    except (InvalidInput, KeyError):
        text = "initialize needs protocolVersion and capabilities"
        raise Refusal(400, INVALID_PARAMS, text, message_id=message.request_id) from None
    client_info = fields.get("clientInfo")
    if len(bytes(capabilities)) + len(bytes(client_info or b"")) > MAX_DECLARED_SIZE:
        text = f"capabilities and clientInfo may have {MAX_DECLARED_SIZE} bytes"
        raise Refusal(413, INVALID_PARAMS, text, message_id=message.request_id)
    return ClientSession(
        owner=owner_of(request.context),
        path=request.path,
        revision=revision,
        # Copies, because these would keep the whole body in memory for as long as the session lasts.
        capabilities=Raw(bytes(capabilities)),
        client_info=None if client_info is None else Raw(bytes(client_info)),
    )


def take_answer(session: ClientSession, message: JsonRpcMessage) -> None:
    """Pass a client's response to the call that waits for it."""
    answer = session.client_answers.get(message.id) if isinstance(message.id, (int, str)) else None
    if answer is not None and not answer.done():
        answer.set_result(message)


async def handle_notification(session: ClientSession, message: JsonRpcMessage) -> None:
    """Cancel a request of the session; other notifications have no effect."""
    if message.method != "notifications/cancelled":
        return  # Others say nothing that servers of the stateless form could use.
    try:
        fields = decode_raw_fields(message.params)
        cancelled = decode_value(fields["requestId"]) if "requestId" in fields else None
    except InvalidInput:
        return
    if isinstance(cancelled, (int, str)) and (call := session.calls.get(cancelled)) is not None:
        await call.cancel()


async def own_answer(session: ClientSession, message: JsonRpcMessage) -> JsonRpcMessage | None:
    """Answer a request that only concerns the session; None if the MCP server must answer it."""
    match message.method:
        case "ping":
            return make_result(message.request_id, {})
        case "initialize":
            return make_error(message.request_id, INVALID_REQUEST, "the session is initialized already")
        case "logging/setLevel":
            if "logging" not in session.server_capabilities:
                return make_error(message.request_id, METHOD_NOT_FOUND, "the server has no log messages")
            level = message.params_object().get("level")
            if level not in LOG_LEVELS:
                return make_error(message.request_id, INVALID_PARAMS, f"level must be one of {', '.join(LOG_LEVELS)}")
            session.log_level = level
            return make_result(message.request_id, {})
        case "resources/subscribe" | "resources/unsubscribe":
            return await _subscribe(session, message)
    return None


async def _subscribe(session: ClientSession, message: JsonRpcMessage) -> JsonRpcMessage:
    resources = session.server_capabilities.get("resources")
    if not isinstance(resources, dict) or not resources.get("subscribe"):
        return make_error(message.request_id, METHOD_NOT_FOUND, "the server has no subscriptions to resources")
    uri = message.params_object().get("uri")
    if not isinstance(uri, str) or len(uri) > MAX_URI_LENGTH:
        text = f"uri must be a text of at most {MAX_URI_LENGTH} characters"
        return make_error(message.request_id, INVALID_PARAMS, text)
    before = len(session.subscribed_uris)
    if message.method == "resources/unsubscribe":
        session.subscribed_uris.discard(uri)
    elif before >= MAX_SUBSCRIBED_URIS:
        return make_error(
            message.request_id, INVALID_PARAMS, f"a session can subscribe to {MAX_SUBSCRIBED_URIS} resources"
        )
    else:
        session.subscribed_uris.add(uri)
    if len(session.subscribed_uris) != before and session.listener is not None:
        await session.listener.restart(SUBSCRIBE_TIMEOUT)
    return make_result(message.request_id, {})
