"""A request of a session: forwarded with the session's metadata, and repeated with the client's input."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import structlog
from msgspec import Raw

from paddock.errors import PaddockError
from paddock.mcp.protocol.endpoint import CallContext, McpEndpoint
from paddock.mcp.protocol.messages import INTERNAL_ERROR, JsonRpcMessage, MessageId, decode_raw_fields, make_error
from paddock.mcp.serving.client_input import ClientInput, ClientInputFailed
from paddock.mcp.serving.client_sessions import ClientSession
from paddock.mcp.serving.http_messages import failure_message
from paddock.mcp.serving.legacy_translation import add_meta, is_input_required, legacy_response, stateless_meta
from paddock.mcp.serving.message_buffer import BufferClosed
from paddock.mcp.serving.session_streams import SessionStream, StreamTimes

MAX_INPUT_ROUNDS = 16
"""Times that a server may ask for more input within one call."""
MAX_FINISHED_STREAMS = 4
"""Streams of a session that are kept after their end, for clients that lost the connection before."""
log = structlog.get_logger()


class SessionCall(SessionStream):
    """One request under way, in a task of its own."""

    def __init__(
        self,
        session: ClientSession,
        message: JsonRpcMessage,
        endpoint: McpEndpoint,
        context: CallContext,
        times: StreamTimes,
        *,
        can_stream: bool,
    ) -> None:
        assert isinstance(message.method, str)
        super().__init__(session.next_number(), times)
        self.id: MessageId = message.request_id
        self.method = message.method
        self._session = session
        self._message = message
        self._endpoint = endpoint
        self._context = replace(context, client_session=session.id)
        self._input = ClientInput(session, self.buffer, times.client_answer, can_ask=can_stream)
        session.calls[self.id] = self
        session.streams[self.number] = self
        self._task = asyncio.create_task(self._run())

    async def first_message(self, timeout: float | None) -> JsonRpcMessage | None:
        """Return the first message before a connection reads the stream; None after `timeout` or a cancellation."""
        self.attach(self)
        try:
            found = await self.buffer.get(self, timeout)
        except BufferClosed:
            return None
        return None if found is None else found[1]

    async def cancel(self) -> None:
        """Cancel the request; no response is sent."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def close(self) -> None:
        self.cancel_expiry()
        await self.cancel()

    def on_abandoned(self) -> None:
        self._task.cancel()
        self._session.streams.pop(self.number, None)

    def forget(self) -> None:
        """Drop the stream of a finished call."""
        self.cancel_expiry()
        self._session.streams.pop(self.number, None)

    async def _run(self) -> None:
        try:
            await self.buffer.put(await self._response())
        finally:
            self.buffer.close()
            if self._session.calls.get(self.id) is self:
                del self._session.calls[self.id]
            self._session.touch()
            self._drop_old_streams()

    async def _response(self) -> JsonRpcMessage:
        try:
            fields = decode_raw_fields(self._message.params)
            session = self._session
            meta = stateless_meta(session.capabilities, session.client_info, session.log_level)
            params = add_meta(fields, meta)
            for _ in range(MAX_INPUT_ROUNDS):
                response = await self._exchange(self._message.with_params(params))
                if not is_input_required(response):
                    return legacy_response(response, self.method).with_id(self.id)
                params = {**params, **await self._input.answers(decode_raw_fields(response.result))}
                params = _without_old_state(params, decode_raw_fields(response.result))
            return make_error(self.id, INTERNAL_ERROR, f"the server asked for input {MAX_INPUT_ROUNDS} times; stopped")
        except ClientInputFailed as failed:
            return make_error(self.id, failed.code, failed.text)
        except PaddockError as error:
            return failure_message(error, self.id)
        except Exception:
            log.exception("unexpected error in MCP call")
            return make_error(self.id, INTERNAL_ERROR, "internal error; see the server's log")

    async def _exchange(self, request: JsonRpcMessage) -> JsonRpcMessage:
        """Send a request, pass its notifications on, and return its response."""
        response: JsonRpcMessage | None = None
        async with aclosing(self._endpoint.exchange(request, self._context)) as messages:
            async for message in messages:
                if response is not None:
                    continue  # Only to let the generator end.
                if message.is_response:
                    response = message
                else:
                    await self.buffer.put(message)
        return response or make_error(self.id, INTERNAL_ERROR, "the request ended without a response")

    def _drop_old_streams(self) -> None:
        streams = self._session.streams
        finished = [each for each in streams.values() if each.buffer.is_closed and not each.is_read]
        for each in finished[:-MAX_FINISHED_STREAMS]:
            each.forget()


def _without_old_state(params: dict[str, Any], asked: Mapping[str, Raw]) -> dict[str, Any]:
    """Return parameters with the state of the last result only, and with none if that had none."""
    if "requestState" not in asked:
        params.pop("requestState", None)
    return params
