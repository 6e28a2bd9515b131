"""Requests to servers of revision 2026-07-28 over streamable HTTP: one POST each, its body unchanged."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

import structlog
from msgspec import UNSET, Raw

from paddock.errors import PaddockError, Unavailable
from paddock.mcp.protocol import CallContext, JsonRpcMessage, encode_message
from paddock.mcp.protocol.headers import (
    METHOD_HEADER,
    NAME_HEADER,
    NAMED_METHODS,
    REVISION_HEADER,
    encode_header_value,
    parameter_headers,
)
from paddock.mcp.protocol.messages import HEADER_MISMATCH, decode_value, make_request
from paddock.mcp.protocol.revisions import LISTEN, META_CLIENT_CAPABILITIES, META_REVISION, STATELESS_REVISION
from paddock.mcp.upstreams.call_clock import CallClock
from paddock.mcp.upstreams.http.http_peer import HttpPeer
from paddock.mcp.upstreams.http.tool_parameters import ToolParameters
from paddock.mcp.upstreams.request_fields import RequestFields, change_meta, error_code, request_fields
from paddock.mcp.upstreams.subscription_renewal import renewed_subscription

MAX_LIST_PAGES = 100
log = structlog.get_logger()


class StatelessHttp:
    """A server that needs no session."""

    def __init__(self, peer: HttpPeer) -> None:
        self._peer = peer
        self._server = peer.server
        self._parameters = ToolParameters(peer.server.name)

    async def exchange(self, request: JsonRpcMessage, context: CallContext) -> AsyncGenerator[JsonRpcMessage, None]:
        """Send a request and yield the server's messages. Raises `PaddockError`."""
        fields = request_fields(request)
        if fields.meta.revision != STATELESS_REVISION or not isinstance(request.params, Raw):
            request = change_meta(request, {META_REVISION: STATELESS_REVISION})
        if request.method == "tools/call" and self._parameters_of(fields) is None:
            await self._list_tools(context)
            self._parameters.assume_plain(str(fields.name))
        if request.method == LISTEN:
            async with aclosing(renewed_subscription(lambda: self._post(request, fields, context))) as messages:
                async for message in messages:
                    yield message
            return
        is_repeated = False
        while True:
            is_refused = False
            async with aclosing(self._post(request, fields, context)) as messages:
                async for message in messages:
                    if not is_repeated and request.method == "tools/call" and error_code(message) == HEADER_MISMATCH:
                        is_refused = True
                        break
                    yield message
            if not is_refused:
                return
            is_repeated = True
            await self._list_tools(context)

    async def probe(self, request: JsonRpcMessage, context: CallContext, clock: CallClock) -> ProbeAnswer:
        """Send a request once; return the response's status, and its message if it is MCP. Raises `PaddockError`."""
        headers = _request_headers(request, request_fields(request), {})
        async with self._peer.send("POST", context, headers, encode_message(request), clock) as answer:
            try:
                async with aclosing(answer.messages()) as messages:
                    async for message in messages:
                        if message.is_response:
                            return ProbeAnswer(answer.status, message.with_id(request.id or 0), None)
            except PaddockError as error:
                return ProbeAnswer(answer.status, None, error)
            return ProbeAnswer(answer.status, None, None)

    async def close(self) -> None:
        """Do nothing: requests are independent of each other."""

    def _parameters_of(self, fields: RequestFields) -> Mapping[tuple[str, ...], str] | None:
        return self._parameters.of_tool(fields.name) if isinstance(fields.name, str) else {}

    async def _post(
        self, request: JsonRpcMessage, fields: RequestFields, context: CallContext
    ) -> AsyncGenerator[JsonRpcMessage, None]:
        is_endless = request.method == LISTEN
        clock = CallClock.unlimited(self._server, context) if is_endless else CallClock(self._server, context)
        mirrored = self._parameters_of(fields) if request.method == "tools/call" else None
        headers = _request_headers(request, fields, mirrored or {})
        name = self._server.name
        has_ignored = False
        async with (
            self._peer.send("POST", context, headers, encode_message(request), clock) as answer,
            aclosing(answer.messages(is_endless)) as messages,
        ):
            async for message in messages:
                if message.is_notification:
                    yield message
                elif message.is_response and _answers(message, request):
                    if request.method == "tools/list":
                        message = self._parameters.learn(message)
                    yield message if message.id == request.id else message.with_id(_request_id(request))
                    return
                elif not has_ignored:
                    has_ignored = True  # A server cannot fill the log.
                    log.info("unexpected message of MCP server ignored", server=name, id=str(message.id)[:100])
        raise Unavailable(f"the MCP server {name} ended its answer (status {answer.status}) without a response")

    async def _list_tools(self, context: CallContext) -> None:
        """Learn which parameters are mirrored; calls are sent without them if the list cannot be had."""
        params: dict[str, object] = {"_meta": {META_REVISION: STATELESS_REVISION, META_CLIENT_CAPABILITIES: {}}}
        try:
            for _ in range(MAX_LIST_PAGES):
                request = make_request("paddock-tools", "tools/list", params)
                cursor = None
                async with aclosing(self._post(request, RequestFields(), context)) as messages:
                    async for message in messages:
                        cursor = message.result_object().get("nextCursor") if message.is_response else None
                if not isinstance(cursor, str) or not cursor:
                    return
                params["cursor"] = cursor
        except PaddockError as error:
            log.info("tools of MCP server not listed", server=self._server.name, reason=error.message)


class ProbeAnswer:
    """The answer to a probe: a message, or why there is none."""

    def __init__(self, status: int, message: JsonRpcMessage | None, error: PaddockError | None) -> None:
        self.status = status
        self.message = message
        self.error = error


def _request_headers(
    request: JsonRpcMessage, fields: RequestFields, mirrored: Mapping[tuple[str, ...], str]
) -> dict[str, str]:
    method = request.method if isinstance(request.method, str) else ""
    headers = {REVISION_HEADER: STATELESS_REVISION, METHOD_HEADER: encode_header_value(method)}
    if field := NAMED_METHODS.get(method):
        name = fields.uri if field == "uri" else fields.name
        if isinstance(name, str):
            headers[NAME_HEADER] = encode_header_value(name)
    if mirrored and isinstance(fields.arguments, Raw):
        headers |= parameter_headers(mirrored, decode_value(fields.arguments))
    return headers


def _answers(message: JsonRpcMessage, request: JsonRpcMessage) -> bool:
    """Return whether a response belongs to a request. Errors may lack the id."""
    return message.id == request.id or (message.error is not UNSET and message.id in (None, UNSET))


def _request_id(request: JsonRpcMessage) -> int | str:
    if not isinstance(request.id, (int, str)):
        raise ValueError("a request has an id")
    return request.id
