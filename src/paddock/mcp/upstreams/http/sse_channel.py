"""Transport of revision 2024-11-05: one event stream for all messages, and an address to which messages are posted."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from yarl import URL

from paddock.errors import Forbidden, InvalidInput, PaddockError, Unavailable
from paddock.mcp.protocol import CallContext, JsonRpcMessage, decode_message, encode_message
from paddock.mcp.protocol.headers import REVISION_HEADER
from paddock.mcp.upstreams.call_clock import CallClock
from paddock.mcp.upstreams.http.http_answer import MAX_ERROR_SIZE, HttpAnswer
from paddock.mcp.upstreams.http.http_peer import HttpPeer
from paddock.mcp.upstreams.sessions.session_channel import SessionChannel, SessionReceiver
from paddock.mcp.upstreams.task_set import TaskSet

MAX_ADDRESS = 4096


class SseChannel(SessionChannel):
    """The event stream of one session."""

    def __init__(self, peer: HttpPeer) -> None:
        self._peer = peer
        self._server = peer.server
        self._tasks = TaskSet()
        self._endpoint: asyncio.Future[URL] = asyncio.get_running_loop().create_future()
        self._revision: str | None = None
        self._is_closed = False

    async def open(self, receiver: SessionReceiver, context: CallContext, clock: CallClock) -> None:
        self._tasks.spawn(self._read(receiver, context))
        try:
            async with clock.wait():
                await asyncio.shield(self._endpoint)
        except TimeoutError:
            raise clock.timeout_error() from None

    def on_initialized(self, revision: str) -> None:
        self._revision = revision

    async def send_request(self, message: JsonRpcMessage, request_id: int, context: CallContext) -> None:
        await self.send_other(message, context)

    async def send_other(self, message: JsonRpcMessage, context: CallContext) -> None:
        endpoint = await asyncio.shield(self._endpoint)
        clock = CallClock(self._server, context, self._server.timeouts.start)
        headers = {REVISION_HEADER: self._revision} if self._revision is not None else {}
        async with self._peer.send("POST", context, headers, encode_message(message), clock, endpoint) as answer:
            if answer.status >= 300:
                raise answer.refusal(await answer.read_start())

    async def close(self) -> None:
        self._is_closed = True
        await self._tasks.close()
        if not self._endpoint.done():
            self._endpoint.cancel()

    async def _read(self, receiver: SessionReceiver, context: CallContext) -> None:
        """Deliver the messages of the stream."""
        error: PaddockError
        try:
            clock = CallClock.unlimited(self._server, context)
            async with self._peer.send("GET", context, {"Accept": "text/event-stream"}, None, clock) as answer:
                if answer.status != 200 or not answer.is_event_stream:
                    raise answer.refusal(await answer.read_start())
                await self._deliver(answer, receiver)
            error = Unavailable(f"the MCP server {self._server.name} closed its event stream")
        except PaddockError as failure:
            error = failure
        if not self._endpoint.done():
            self._endpoint.set_exception(error)
            self._endpoint.exception()  # Mark as retrieved: the opener may have given up.
        if not self._is_closed:
            receiver.on_channel_closed(error)

    async def _deliver(self, answer: HttpAnswer, receiver: SessionReceiver) -> None:
        async with aclosing(answer.events(endless=True)) as events:
            async for event in events:
                if event.event == "endpoint" and not self._endpoint.done():
                    self._endpoint.set_result(self._checked_endpoint(event.data[:MAX_ERROR_SIZE]))
                elif event.event == "message":
                    try:
                        message = decode_message(event.data)
                    except InvalidInput as error:
                        raise Unavailable(
                            f"the MCP server {self._server.name} answers with invalid content: {error.message}"
                        ) from None
                    receiver.on_message(message, None)

    def _checked_endpoint(self, address: bytes) -> URL:
        """Return the address for messages, which must have the origin of the stream."""
        name = self._server.name
        try:
            url = self._peer.url.join(URL(address.decode("ascii"), encoded=True))
            is_valid = len(address) <= MAX_ADDRESS and url.origin() == self._peer.url.origin() and not url.user
        except ValueError:
            is_valid = False
        if not is_valid:
            raise Forbidden(f"the MCP server {name} wants messages at another host, which is not allowed")
        return url
