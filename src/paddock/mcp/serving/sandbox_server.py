"""MCP for the programs of one sandbox, on the socket of its uplink service. No key is needed: the socket is its own."""

from __future__ import annotations

import asyncio

import structlog
from aiohttp import web

from paddock.errors import TooLarge
from paddock.fleet.uplink_http_server import UplinkHttpServer
from paddock.fleet.uplink_sockets import is_from_web_page
from paddock.mcp.protocol.endpoint import CallContext
from paddock.mcp.protocol.messages import INVALID_REQUEST
from paddock.mcp.serving.http_edge import MAX_REQUEST_SIZE, METHODS, McpHttpEdge
from paddock.mcp.serving.http_messages import (
    McpHttpReply,
    McpHttpRequest,
    Refusal,
    ReplyStream,
    failure_reply,
)

MCP_UPLINK_NAME = "mcp"
SEND_TIMEOUT = 120.0
"""Seconds for which a program may stop reading a response."""
log = structlog.get_logger()


class SandboxMcpServer(UplinkHttpServer):
    """Serves `/NAME`, `/` for all servers, and `/sets/NAME`."""

    def __init__(self, edge: McpHttpEdge, context: CallContext) -> None:
        super().__init__(MCP_UPLINK_NAME, decompress=False)
        self._edge = edge
        self._context = context

    async def close(self) -> None:
        """Close all connections, and end all sessions."""
        await super().close()
        await self._edge.close()

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            reply = await self._answer(request)
        except TooLarge as error:
            reply = failure_reply(error)
        except ValueError:
            reply = _refusal(400, "The request's address or headers contain invalid text.")
        except Exception:
            log.exception("unexpected error in MCP request of sandbox")
            raise
        if reply.stream is None:
            response = web.Response(status=reply.status, headers=dict(reply.headers), body=reply.body)
            if reply.status == 413:
                response.force_close()
            return response
        return await _send_stream(request, reply, reply.stream)

    async def _answer(self, request: web.BaseRequest) -> McpHttpReply:
        if is_from_web_page(request.headers):
            return _refusal(403, "Web pages may not call the MCP servers of the sandbox.")
        if request.method not in METHODS:
            refusal = Refusal(405, INVALID_REQUEST, f"MCP uses the methods {', '.join(METHODS)}.")
            refusal.headers["allow"] = ", ".join(METHODS)
            return refusal.reply()
        if request.headers.get("Content-Encoding", "identity") != "identity":
            return _refusal(415, "The body must not be compressed.")
        headers: dict[str, str] = {}
        for name, value in request.headers.items():
            key = name.lower()
            headers[key] = f"{headers[key]}, {value}" if key in headers else value
        target, _, query = request.raw_path.partition("#")[0].partition("?")
        path = target.removeprefix("/").removesuffix("/")
        body = await _read_body(request)
        return await self._edge.handle(McpHttpRequest(request.method, headers, body, path, self._context, query=query))


async def _read_body(request: web.BaseRequest) -> bytes:
    if (request.content_length or 0) > MAX_REQUEST_SIZE:
        raise _too_large()
    body = bytearray()
    async for chunk in request.content.iter_any():
        body += chunk
        if len(body) > MAX_REQUEST_SIZE:
            raise _too_large()
    return bytes(body)


async def _send_stream(request: web.BaseRequest, reply: McpHttpReply, stream: ReplyStream) -> web.StreamResponse:
    """Send a stream; the end of the connection cancels this, and closes the stream."""
    response = web.StreamResponse(status=reply.status, headers=dict(reply.headers))
    try:
        await response.prepare(request)
        while (chunk := await stream.next_chunk()) is not None:
            async with asyncio.timeout(SEND_TIMEOUT):
                await response.write(chunk)
        await response.write_eof()
    except (ConnectionError, TimeoutError):
        # An aborted connection does not look like the end of the stream.
        if request.transport is not None:
            request.transport.abort()
    finally:
        await stream.close()
    return response


def _too_large() -> TooLarge:
    return TooLarge(f"The request is larger than {MAX_REQUEST_SIZE >> 20} MiB.")


def _refusal(status: int, text: str) -> McpHttpReply:
    return Refusal(status, INVALID_REQUEST, text).reply()
