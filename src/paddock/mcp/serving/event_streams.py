"""The HTTP+SSE transport of revision 2024-11-05: one stream per session, and an address to which messages are sent.

`GET NAME/sse` opens the stream; its first event, `endpoint`, is the address for messages. Responses and everything else
that the server says come on the stream, and the session ends with it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import replace
from urllib.parse import parse_qs, parse_qsl, quote, urlencode

import structlog
from msgspec import Raw

from paddock.errors import PaddockError
from paddock.mcp.protocol.messages import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    LEGACY_REQUEST_TIMEOUT,
    JsonRpcMessage,
    make_error,
)
from paddock.mcp.protocol.revisions import LEGACY_REVISIONS
from paddock.mcp.serving.client_sessions import ClientSession, ClientSessions, owner_of
from paddock.mcp.serving.http_messages import (
    EVENT_STREAM_HEADERS,
    KEEP_ALIVE_COMMENT,
    McpHttpReply,
    McpHttpRequest,
    Refusal,
    ReplyStream,
    event_bytes,
    failure_message,
)
from paddock.mcp.serving.message_buffer import BufferClosed, MessageBuffer
from paddock.mcp.serving.session_calls import SessionCall
from paddock.mcp.serving.session_request_handler import (
    MAX_CALLS,
    Resolver,
    SessionRequestHandler,
    handle_notification,
    new_session,
    own_answer,
    take_answer,
)
from paddock.mcp.serving.session_streams import SessionStream, StreamTimes

STREAM_SUFFIX = "/sse"
MESSAGES_SUFFIX = "/messages"
SESSION_PARAMETER = "session_id"
MAX_PENDING = 2 * MAX_CALLS
"""Messages of a session that are handled at a time, and that wait until the client reads."""
INITIALIZE_TIME = 60.0
"""Seconds in which a client must send `initialize`."""
log = structlog.get_logger()


def event_stream_path(path: str) -> tuple[str, str] | None:
    """Return the path of the server and the suffix; None if a path is not of this transport."""
    for suffix in (STREAM_SUFFIX, MESSAGES_SUFFIX):
        server = path.removesuffix(suffix)
        if server not in (path, "", "sets"):
            return server, suffix
    return None


class EventStream(ReplyStream):
    """The stream of one session, with the tasks that write to it."""

    def __init__(self, sessions: ClientSessions, session: ClientSession, address: str, keep_alive: float) -> None:
        self._sessions = sessions
        self._session = session
        self._opening: bytes | None = b"event: endpoint\r\ndata: %s\r\n\r\n" % address.encode()
        self._keep_alive = keep_alive
        self._opened_at = time.monotonic()
        self._buffer = MessageBuffer()
        self._buffer.take_over(self)
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_ending = False
        self.is_initialized = False

    async def next_chunk(self) -> bytes | None:
        if self._opening is not None:
            opening, self._opening = self._opening, None
            return opening
        timeout = self._keep_alive
        if not self.is_initialized:
            timeout = min(timeout, max(0.0, self._opened_at + INITIALIZE_TIME - time.monotonic()))
        try:
            found = await self._buffer.get(self, timeout)
        except BufferClosed:
            return None
        if found is not None:
            return event_bytes(found[1])
        return None if not self.is_initialized and timeout < self._keep_alive else KEEP_ALIVE_COMMENT

    async def close(self) -> None:
        """End the session: the connection has ended."""
        await self._sessions.end(self._session)

    async def end(self) -> None:
        """Stop what writes to the stream, and end it."""
        self._buffer.close()
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def end_after_calls(self) -> None:
        """End the stream when no calls are under way."""
        self._is_ending = True
        self._end_if_idle()

    async def send(self, message: JsonRpcMessage) -> None:
        await self._buffer.put(message)

    async def forward(self, stream: SessionStream) -> None:
        """Send the messages of a call or of a subscription."""
        stream.attach(self)
        try:
            while (found := await stream.buffer.get(self, None)) is not None:
                await self._buffer.put(found[1])
        except BufferClosed:
            pass

    def run(self, work: Coroutine[None, None, None]) -> None:
        """Do something for a message of the client. Raises `Refusal` if too much is under way."""
        if len(self._tasks) >= MAX_PENDING or self._is_ending:
            work.close()
            reason = "the server stops" if self._is_ending else f"{MAX_PENDING} messages wait; read the stream"
            raise Refusal(503 if self._is_ending else 429, INTERNAL_ERROR, reason)
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("unexpected error in MCP event stream", exc_info=error)
        self._end_if_idle()

    def _end_if_idle(self) -> None:
        if self._is_ending and not self._session.calls:
            self._buffer.close()


class EventStreamRequests:
    """Opens the streams of clients, and takes their messages."""

    def __init__(
        self, resolve: Resolver, sessions: ClientSessions, requests: SessionRequestHandler, times: StreamTimes
    ) -> None:
        self._resolve = resolve
        self._sessions = sessions
        self._requests = requests
        self._times = times

    async def open(self, request: McpHttpRequest, server: str) -> McpHttpReply:
        """Open a stream and its session. Raises `Refusal` and `PaddockError`."""
        if request.method != "GET":
            refusal = Refusal(405, INVALID_REQUEST, f"{request.method} is not used here; open the stream with GET")
            refusal.headers["allow"] = "GET"
            raise refusal
        self._resolve(server, request.context)
        if not request.accepts_events():
            raise Refusal(406, INVALID_REQUEST, "GET needs Accept: text/event-stream")
        # The path is not that of the server, so that the session cannot be used over streamable HTTP.
        session = ClientSession(
            owner=owner_of(request.context),
            path=server + STREAM_SUFFIX,
            revision=LEGACY_REVISIONS[0],
            capabilities=Raw(b"{}"),
            client_info=None,
        )
        # Other parameters, such as the sandbox of programs, are of messages too.
        query = "&".join(part for part in (f"{SESSION_PARAMETER}={session.id}", _plain_query(request.query)) if part)
        address = f"{request.mount}/{quote(server + MESSAGES_SUFFIX)}?{query}"
        session.event_stream = EventStream(self._sessions, session, address, self._times.keep_alive)
        await self._sessions.add(session)
        return McpHttpReply(200, EVENT_STREAM_HEADERS, stream=session.event_stream)

    def find(self, request: McpHttpRequest, server: str) -> ClientSession:
        """Return the session by the address that a message was sent to. Raises `Refusal`."""
        if request.method != "POST":
            refusal = Refusal(405, INVALID_REQUEST, f"{request.method} is not used here; send messages with POST")
            refusal.headers["allow"] = "POST"
            raise refusal
        try:
            ids = parse_qs(request.query, max_num_fields=10).get(SESSION_PARAMETER, [])
        except ValueError:
            ids = []
        session = self._sessions.find(ids[0], server + STREAM_SUFFIX, request.context) if len(ids) == 1 else None
        if session is None:
            text = "Session not found: its stream has ended, or it belongs to another client; open a stream again"
            raise Refusal(404, LEGACY_REQUEST_TIMEOUT, text)
        return session

    async def accept(
        self, session: ClientSession, request: McpHttpRequest, server: str, message: JsonRpcMessage
    ) -> McpHttpReply:
        """Take a message; its response is sent on the stream. Raises `Refusal`."""
        stream = session.event_stream
        assert stream is not None
        if message.is_response:
            take_answer(session, message)
        elif message.is_notification:
            await handle_notification(session, message)
        else:
            stream.run(self._answer(session, stream, replace(request, path=server), message))
        return McpHttpReply(202)

    async def _answer(
        self, session: ClientSession, stream: EventStream, request: McpHttpRequest, message: JsonRpcMessage
    ) -> None:
        try:
            if message.method == "initialize" and not stream.is_initialized:
                await self._initialize(session, stream, request, message)
            elif not stream.is_initialized and message.method != "ping":
                await stream.send(make_error(message.request_id, INVALID_REQUEST, "send initialize first"))
            elif message.request_id in session.calls:
                # A second response with the id could be taken for that of the first request.
                log.info("MCP client used the id of a request under way", session_path=session.path)
            elif (own := await own_answer(session, message)) is not None:
                await stream.send(own)
            elif len(session.calls) >= MAX_CALLS:
                text = f"the session has {MAX_CALLS} requests under way"
                await stream.send(make_error(message.request_id, INTERNAL_ERROR, text))
            else:
                endpoint = self._resolve(request.path, replace(request.context, client_session=session.id))
                call = SessionCall(session, message, endpoint, request.context, self._times, can_stream=True)
                try:
                    await stream.forward(call)
                finally:
                    call.forget()
        except Refusal as refusal:
            await stream.send(refusal.message)
        except PaddockError as error:
            await stream.send(failure_message(error, message.request_id))

    async def _initialize(
        self, session: ClientSession, stream: EventStream, request: McpHttpRequest, message: JsonRpcMessage
    ) -> None:
        declared = new_session(request, message)
        session.revision, session.capabilities = declared.revision, declared.capabilities
        session.client_info = declared.client_info
        stream.is_initialized = True
        response, failure = await self._requests.discover(session, request, message)
        if failure is not None or response.error:
            stream.is_initialized = False
            await stream.send(failure_message(failure, message.request_id) if failure is not None else response)
            return
        listener = self._requests.listener(request, session)
        stream.run(stream.forward(listener))
        listener.start()
        await stream.send(response)


def _plain_query(query: str) -> str:
    """Return the parameters of the stream's address, encoded anew; none if they name a session."""
    try:
        parameters = parse_qsl(query, keep_blank_values=True, max_num_fields=10)
    except ValueError:
        raise Refusal(400, INVALID_REQUEST, "the address has too many parameters") from None
    return urlencode([each for each in parameters if each[0] != SESSION_PARAMETER])
