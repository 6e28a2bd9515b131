"""Requests of clients of revision 2026-07-28: one POST, answered by JSON or by a stream of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from msgspec import Raw

from paddock.errors import InvalidInput
from paddock.mcp.protocol.endpoint import McpEndpoint
from paddock.mcp.protocol.headers import PARAMETER_HEADER_PREFIX
from paddock.mcp.protocol.messages import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    JsonRpcMessage,
    MessageId,
    decode_raw_fields,
    decode_value,
    make_result,
)
from paddock.mcp.protocol.revisions import (
    COMPLETE,
    DISCOVER,
    LISTEN,
    META_SUBSCRIPTION,
    RESULT_TYPE,
    STATELESS_REVISION,
)
from paddock.mcp.serving.header_checks import check_parameter_headers, check_standard_headers
from paddock.mcp.serving.http_messages import (
    EVENT_STREAM_HEADERS,
    KEEP_ALIVE_COMMENT,
    McpHttpReply,
    McpHttpRequest,
    Refusal,
    ReplyStream,
    event_bytes,
    json_reply,
    status_for_failure,
)
from paddock.mcp.serving.message_buffer import BufferClosed
from paddock.mcp.serving.running_exchange import RunningExchange
from paddock.mcp.serving.tool_headers import ToolHeaders

FIRST_MESSAGE_WAIT = 3.0
"""Seconds after which a reply becomes a stream with keep-alives; a response before has its own HTTP status."""
KEEP_ALIVE_INTERVAL = 15.0
REMOVED_METHODS = frozenset(("initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"))
"""Methods of older revisions. Servers of those would answer them, and change what other clients get."""
_PARAMETER_PREFIX = PARAMETER_HEADER_PREFIX.lower()


class StatelessRequestHandler:
    """Answers requests that stand alone."""

    def __init__(self, tool_headers: ToolHeaders) -> None:
        self._tool_headers = tool_headers
        self._subscriptions: dict[RunningExchange, MessageId] = {}

    async def answer(self, request: McpHttpRequest, message: JsonRpcMessage, endpoint: McpEndpoint) -> McpHttpReply:
        """Answer one request. Raises `Refusal` and `PaddockError`."""
        message, fields = self._checked(request, message)
        if message.method in REMOVED_METHODS:
            text = f"Method not found: {message.method} is of older revisions"
            raise Refusal(404, METHOD_NOT_FOUND, text, message_id=message.request_id)
        if message.method == LISTEN and not request.accepts_events():
            raise Refusal(
                406, INVALID_REQUEST, f"{LISTEN} needs Accept: text/event-stream", message_id=message.request_id
            )
        if message.method == "tools/call":
            await self._check_parameters(request, message.request_id, fields, endpoint)
        exchange = RunningExchange(endpoint.exchange(message, request.context), message.request_id)
        if message.method == LISTEN:
            self._subscriptions[exchange] = message.request_id
            exchange.on_end(lambda: self._subscriptions.pop(exchange, None))
        try:
            first = await exchange.next_message(FIRST_MESSAGE_WAIT)
            if not request.accepts_events():
                while first is None or not first.is_response:
                    first = await exchange.next_message(None)
            if first is not None and first.is_response:
                await exchange.close()
                return self._json(request, message, first, exchange)
        except BaseException:
            await exchange.close()
            raise
        return McpHttpReply(200, EVENT_STREAM_HEADERS, stream=_ExchangeStream(first, exchange))

    def end_subscriptions(self) -> None:
        """End all subscriptions with a response, as a server does that stops."""
        for exchange, number in list(self._subscriptions.items()):
            exchange.end_with(make_result(number, {RESULT_TYPE: COMPLETE, "_meta": {META_SUBSCRIPTION: number}}))

    def _checked(self, request: McpHttpRequest, message: JsonRpcMessage) -> tuple[JsonRpcMessage, Mapping[str, Raw]]:
        """Return the message as it was checked, without duplicate keys, and the fields of its parameters."""
        assert isinstance(message.method, str)
        try:
            fields = decode_raw_fields(message.params)
            meta = decode_value(fields["_meta"]) if "_meta" in fields else None
            named: dict[str, Any] = {key: decode_value(fields[key]) for key in ("name", "uri") if key in fields}
        except InvalidInput as error:
            raise Refusal(400, INVALID_PARAMS, error.message, message_id=message.request_id) from None
        check_standard_headers(request.headers, message.request_id, message.method, named, meta)
        return message.with_params(fields), fields

    async def _check_parameters(
        self, request: McpHttpRequest, message_id: MessageId, fields: Mapping[str, Raw], endpoint: McpEndpoint
    ) -> None:
        has_headers = any(header.startswith(_PARAMETER_PREFIX) for header in request.headers)
        name = decode_value(fields["name"]) if "name" in fields else None
        if isinstance(name, str) and ("arguments" in fields or has_headers):
            mirrored = await self._tool_headers.of_tool(request.path, endpoint, request.context, name)
            if mirrored:
                arguments = decode_value(fields["arguments"]) if "arguments" in fields else None
                check_parameter_headers(mirrored, request.headers, arguments, message_id)

    def _json(
        self, request: McpHttpRequest, message: JsonRpcMessage, response: JsonRpcMessage, exchange: RunningExchange
    ) -> McpHttpReply:
        if exchange.failure is not None:
            return json_reply(response, status_for_failure(exchange.failure))
        if message.method == "tools/list":
            self._tool_headers.on_list(request.path, request.context, response)
        elif message.method == DISCOVER and response.result:
            response = _with_own_revision(response)
        return json_reply(response)


class _ExchangeStream(ReplyStream):
    """Messages of an exchange as server-sent events. Closing it cancels the exchange."""

    def __init__(self, first: JsonRpcMessage | None, exchange: RunningExchange) -> None:
        self._first = first
        self._exchange = exchange

    async def next_chunk(self) -> bytes | None:
        if self._first is not None:
            message, self._first = self._first, None
            return event_bytes(message)
        try:
            found = await self._exchange.next_message(KEEP_ALIVE_INTERVAL)
        except BufferClosed:
            return None
        return KEEP_ALIVE_COMMENT if found is None else event_bytes(found)

    async def close(self) -> None:
        await asyncio.shield(self._exchange.close())


def _with_own_revision(response: JsonRpcMessage) -> JsonRpcMessage:
    """Return a discovery with the revision that this edge serves: the server's may be older."""
    fields: dict[str, Any] = dict(decode_raw_fields(response.result))
    fields["supportedVersions"] = [STATELESS_REVISION]
    return response.with_result(fields)
