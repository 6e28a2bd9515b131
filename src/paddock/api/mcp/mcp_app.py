"""MCP clients on the main port: `/mcp/NAME` is a server, `/mcp` all servers, and `/mcp/sets/NAME` a set.

Servers that are programs need a sandbox, which `?sandbox=ID` names.

A raw ASGI app, because it is a hot path. Keys are those of the API; errors are JSON-RPC errors.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from urllib.parse import parse_qs

from starlette.types import Receive, Scope, Send

from paddock.api.http.allowed_origins import AllowedOrigins
from paddock.api.http.authentication import RequestAuthenticator
from paddock.api.http.disconnect_watch import DisconnectWatch
from paddock.errors import Forbidden, InvalidInput, PaddockError, TooLarge, Unavailable
from paddock.fleet.fleet import Fleet
from paddock.llm.wire.memory_budget import MemoryReservation, TenantMemoryBudgets
from paddock.mcp.gateway.contexts import principal_context
from paddock.mcp.protocol import CallContext
from paddock.mcp.serving.http_edge import MAX_REQUEST_SIZE, McpHttpEdge
from paddock.mcp.serving.http_messages import McpHttpReply, McpHttpRequest, ReplyStream, failure_reply
from paddock.model.keys import Principal
from paddock.model.keys import Scope as KeyScope

MCP_PATH = "/mcp"
WATCH_AFTER = 1.0
"""Seconds after which it is watched whether the key of a stream is still valid; most streams are shorter."""
SEND_STALL_TIMEOUT = 120.0
"""Seconds a client may leave its response unread."""


class McpApp:
    """Passes requests of MCP clients to the edge of the gateway."""

    def __init__(
        self,
        edge: McpHttpEdge,
        admission: RequestAuthenticator,
        origins: AllowedOrigins,
        memory: TenantMemoryBudgets,
        fleet: Fleet,
        wait_until_invalid: Callable[[Principal], Awaitable[str]],
    ) -> None:
        """`wait_until_invalid` returns when a key or login can no longer be used."""
        self._edge = edge
        self._fleet = fleet
        self._wait_until_invalid = wait_until_invalid
        self._admission = admission
        self._origins = origins
        self._memory = memory

    def handles(self, scope: Scope) -> bool:
        path: str = scope["path"]
        return scope["type"] == "http" and (path == MCP_PATH or path.startswith(f"{MCP_PATH}/"))

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        held: list[MemoryReservation] = []
        try:
            try:
                principal = await self._authenticate(scope)
                request = await self._request(principal, scope, receive, held)
            except PaddockError as error:
                # What is left of the body is not read.
                await _send_whole(send, failure_reply(error), close=True)
                return
            except ConnectionResetError:
                return
            watch = DisconnectWatch(receive)
            try:
                await self._answer(request, principal, held, send)
            except asyncio.CancelledError:
                if not watch.disconnected:
                    raise
            finally:
                await watch.stop()
        finally:
            for each in held:
                each.release()

    async def _answer(
        self, request: McpHttpRequest, principal: Principal, held: list[MemoryReservation], send: Send
    ) -> None:
        reply = await self._edge.handle(request)
        if reply.stream is None:
            await _send_whole(send, reply)
            return
        try:
            while held:
                held.pop().release()  # Streams may last for days.
            async with self._while_valid(principal):
                await _send_stream(send, reply, reply.stream)
        finally:
            await reply.stream.close()

    @asynccontextmanager
    async def _while_valid(self, principal: Principal) -> AsyncIterator[None]:
        """Leave the context early when the key or login becomes invalid."""
        sending, has_ended = asyncio.current_task(), False

        async def end_when_invalid() -> None:
            nonlocal has_ended
            await asyncio.sleep(WATCH_AFTER)
            await self._wait_until_invalid(principal)
            has_ended = True
            if sending is not None:
                sending.cancel()

        watching = asyncio.create_task(end_when_invalid())
        try:
            yield
        except asyncio.CancelledError:
            if not has_ended or sending is None:
                raise
            sending.uncancel()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _authenticate(self, scope: Scope) -> Principal:
        if not self._origins.allows_request(scope):
            raise Forbidden("Web pages may not call MCP servers here; add their origin to server.cors_origins")
        principal = await self._admission.authenticate(scope)
        principal.require(KeyScope.MCP_USE)
        return principal

    async def _request(
        self, principal: Principal, scope: Scope, receive: Receive, held: list[MemoryReservation]
    ) -> McpHttpRequest:
        """Read the body. Raises `PaddockError`, and `ConnectionResetError` if the client leaves."""
        headers: dict[str, str] = {}
        for raw_name, raw_value in scope["headers"]:
            name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        if headers.get("content-length", "").isdigit() and int(headers["content-length"]) > MAX_REQUEST_SIZE:
            raise _too_large()
        body = await self._read_body(principal, receive, held)
        path = scope["path"].removeprefix(MCP_PATH).removeprefix("/").removesuffix("/")
        context = await self._context(principal, scope["query_string"])
        return McpHttpRequest(
            scope["method"],
            headers,
            body,
            path,
            context,
            query=scope["query_string"].decode("latin-1"),
            mount=scope.get("root_path", "") + MCP_PATH,
        )

    async def _context(self, principal: Principal, query: bytes) -> CallContext:
        context = principal_context(principal)
        if not query:
            return context
        try:
            named = parse_qs(query.decode("latin-1"), keep_blank_values=True, max_num_fields=100).get("sandbox", [])
        except ValueError:
            raise InvalidInput("the address has too many parameters") from None
        if not named:
            return context
        if len(named) > 1:
            raise InvalidInput("sandbox: name one sandbox")
        principal.require(KeyScope.SANDBOXES_WRITE)  # Programs are started in it.
        return replace(context, sandbox=(await self._fleet.get(principal.tenant, named[0])).id)

    async def _read_body(self, principal: Principal, receive: Receive, held: list[MemoryReservation]) -> bytes:
        message = await receive()
        if message["type"] == "http.request" and not message.get("more_body"):
            body: bytes = message.get("body", b"")
            if len(body) > MAX_REQUEST_SIZE:
                raise _too_large()
            return body
        held.append(self._memory.reservation(str(principal.tenant)))
        pieces = bytearray()
        while message["type"] == "http.request":
            data: bytes = message.get("body", b"")
            pieces += data
            if len(pieces) > MAX_REQUEST_SIZE:
                raise _too_large()
            if not held[0].grow(len(data)):
                raise Unavailable("too many large requests are under way; try again later")
            if not message.get("more_body"):
                return bytes(pieces)
            message = await receive()
        raise ConnectionResetError("the client disconnected before the end of its request")


async def _send_whole(send: Send, reply: McpHttpReply, *, close: bool = False) -> None:
    headers = [*_raw_headers(reply), (b"content-length", b"%d" % len(reply.body))]
    if close:
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})


async def _send_stream(send: Send, reply: McpHttpReply, stream: ReplyStream) -> None:
    """Send a stream. A client that does not read leaves the response unfinished, so that it is cut off."""
    await send({"type": "http.response.start", "status": reply.status, "headers": _raw_headers(reply)})
    while (chunk := await stream.next_chunk()) is not None:
        try:
            async with asyncio.timeout(SEND_STALL_TIMEOUT):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except TimeoutError:
            return
    await send({"type": "http.response.body", "body": b""})


def _raw_headers(reply: McpHttpReply) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in reply.headers.items()]


def _too_large() -> TooLarge:
    return TooLarge(f"the request is larger than {MAX_REQUEST_SIZE >> 20} MiB")
