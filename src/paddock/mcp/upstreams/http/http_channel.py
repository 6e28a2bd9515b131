"""Streamable HTTP of the revisions with sessions: one POST per message, and a GET stream for notifications."""

from __future__ import annotations

import asyncio
import re
from contextlib import aclosing

import structlog

from paddock.errors import McpTimeout, PaddockError, Unavailable
from paddock.mcp.protocol import CallContext, JsonRpcMessage, encode_message
from paddock.mcp.protocol.headers import REVISION_HEADER, SESSION_HEADER
from paddock.mcp.upstreams.call_clock import CallClock
from paddock.mcp.upstreams.http.http_answer import HttpAnswer, HttpRefused
from paddock.mcp.upstreams.http.http_peer import HttpPeer
from paddock.mcp.upstreams.sessions.session_channel import SessionChannel, SessionExpired, SessionReceiver
from paddock.mcp.upstreams.task_set import TaskSet

MAX_RESUMES = 100
"""How often the stream of one request is resumed."""
MAX_RESUME_DELAY = 30.0
LISTEN_DELAYS = (0.2, 1.0, 5.0, 15.0, 60.0)
"""Seconds between attempts to open the stream for notifications."""
CLOSE_TIME = 5.0
_VISIBLE = re.compile(r"[\x21-\x7e]{1,1024}")
log = structlog.get_logger()


class HttpChannel(SessionChannel):
    """The requests of one session."""

    def __init__(self, peer: HttpPeer) -> None:
        self._peer = peer
        self._server = peer.server
        self._tasks = TaskSet()
        self._pumps: dict[int, asyncio.Task[None]] = {}
        self._session_id: str | None = None
        self._revision: str | None = None
        self._receiver: SessionReceiver | None = None
        self._context = CallContext(tenant="", caller="")
        self._listening: asyncio.Task[None] | None = None

    async def open(self, receiver: SessionReceiver, context: CallContext, clock: CallClock) -> None:
        self._receiver = receiver
        self._context = context

    def on_initialized(self, revision: str) -> None:
        self._revision = revision

    async def send_request(self, message: JsonRpcMessage, request_id: int, context: CallContext) -> None:
        task = self._tasks.spawn(self._pump(message, request_id, context))
        if task is None:
            raise Unavailable(f"the session with the MCP server {self._server.name} was closed")
        self._pumps[request_id] = task

    async def send_other(self, message: JsonRpcMessage, context: CallContext) -> None:
        clock = CallClock(self._server, context, CLOSE_TIME)
        async with self._peer.send("POST", context, self._headers(), encode_message(message), clock) as answer:
            if self._is_expired(answer, b""):
                raise SessionExpired(f"the session with the MCP server {self._server.name} has expired")
            if answer.status >= 300:
                raise answer.refusal(await answer.read_start())

    def forget_request(self, request_id: int) -> None:
        task = self._pumps.pop(request_id, None)
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    def listen(self, context: CallContext) -> None:
        if self._listening is None or self._listening.done():
            self._listening = self._tasks.spawn(self._listen(context))

    async def close(self) -> None:
        await self._tasks.close()
        if self._session_id is None:
            return
        clock = CallClock(self._server, self._context, CLOSE_TIME)
        try:
            async with self._peer.send("DELETE", self._context, self._headers(), None, clock):
                pass
        except PaddockError as error:
            log.info("session with MCP server not ended", server=self._server.name, reason=error.message)

    async def _pump(self, message: JsonRpcMessage, request_id: int, context: CallContext) -> None:
        """Send a request and deliver what comes on its stream."""
        assert self._receiver is not None
        try:
            # The session limits the time of the call.
            clock = CallClock.unlimited(self._server, context)
            resume_from, delay = await self._post(message, request_id, context, clock)
            for _ in range(MAX_RESUMES):
                if resume_from is None:
                    break
                await asyncio.sleep(delay)
                resume_from, delay = await self._resume(resume_from, request_id, context, clock)
            name = self._server.name
            raise Unavailable(f"the MCP server {name} ended its answer without a response")
        except PaddockError as error:
            self._receiver.on_request_failed(request_id, error)
        finally:
            if self._pumps.get(request_id) is asyncio.current_task():
                del self._pumps[request_id]

    async def _post(
        self, message: JsonRpcMessage, request_id: int, context: CallContext, clock: CallClock
    ) -> tuple[str | None, float]:
        async with self._peer.send("POST", context, self._headers(), encode_message(message), clock) as answer:
            if answer.status >= 400:
                await self._check_refusal(answer)
            if message.method == "initialize":
                self._take_session_id(answer)
            return await self._deliver(answer, request_id)

    async def _resume(
        self, event_id: str, request_id: int, context: CallContext, clock: CallClock
    ) -> tuple[str | None, float]:
        headers = self._headers() | {"Accept": "text/event-stream", "Last-Event-ID": event_id}
        async with self._peer.send("GET", context, headers, None, clock) as answer:
            if not answer.is_event_stream or answer.status != 200:
                raise Unavailable(f"the MCP server {self._server.name} broke off its answer, which cannot be resumed")
            resume_from, delay = await self._deliver(answer, request_id)
            return resume_from or event_id, delay

    async def _deliver(self, answer: HttpAnswer, request_id: int) -> tuple[str | None, float]:
        """Deliver messages until the response; return from where a stream that ended before is resumed."""
        assert self._receiver is not None
        try:
            async with aclosing(answer.messages()) as messages:
                async for message in messages:
                    self._receiver.on_message(message, request_id)
        except (HttpRefused, McpTimeout):
            if not answer.is_event_stream or answer.last_event_id is None:
                raise
        return answer.last_event_id, min(answer.retry if answer.retry is not None else 1.0, MAX_RESUME_DELAY)

    async def _check_refusal(self, answer: HttpAnswer) -> None:
        """Raise `SessionExpired`, or nothing if the body may be a JSON-RPC error."""
        if self._session_id is None:
            return
        body = await answer.peek_error()
        is_unknown_method = b"-32601" in body
        if self._is_expired(answer, body) and not is_unknown_method:
            raise SessionExpired(f"the session with the MCP server {self._server.name} has expired")

    def _is_expired(self, answer: HttpAnswer, body: bytes) -> bool:
        if self._session_id is None:
            return False
        # Some servers answer 400 for sessions that they do not know.
        return answer.status == 404 or (answer.status == 400 and b"session" in body.lower())

    def _take_session_id(self, answer: HttpAnswer) -> None:
        session_id = answer.headers.get(SESSION_HEADER)
        if session_id is not None and not _VISIBLE.fullmatch(session_id):
            raise Unavailable(f"the MCP server {self._server.name} gave an invalid session id")
        self._session_id = session_id

    async def _listen(self, context: CallContext) -> None:
        """Keep the stream for notifications open; servers need not have one."""
        assert self._receiver is not None
        failures = 0
        resume_from: str | None = None
        while failures < len(LISTEN_DELAYS):
            headers = self._headers() | {"Accept": "text/event-stream"}
            if resume_from is not None:
                headers["Last-Event-ID"] = resume_from
            try:
                clock = CallClock.unlimited(self._server, context)
                async with self._peer.send("GET", context, headers, None, clock) as answer:
                    if self._is_expired(answer, b""):
                        self._receiver.on_channel_closed(
                            SessionExpired(f"the session with the MCP server {self._server.name} has expired")
                        )
                        return
                    if answer.status == 405 or not answer.is_event_stream:
                        return
                    async with aclosing(answer.messages(endless=True)) as messages:
                        async for message in messages:
                            failures = 0
                            self._receiver.on_message(message, None)
                    resume_from = answer.last_event_id or resume_from
            except PaddockError as error:
                log.info("stream of MCP server broke off", server=self._server.name, reason=error.message)
            await asyncio.sleep(LISTEN_DELAYS[failures])
            failures += 1

    def _headers(self) -> dict[str, str]:
        headers = {}
        if self._session_id is not None:
            headers[SESSION_HEADER] = self._session_id
        if self._revision is not None:
            headers[REVISION_HEADER] = self._revision
        return headers
