"""Serves each sandbox's own tools over MCP to the programs in that sandbox.

In a sandbox the tools are at `http://127.0.0.1:8765/mcp`. No key is needed: the socket behind the address belongs to
that sandbox alone. As for clients outside, calls that use mouse or keyboard wait while a person has taken over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import structlog
from aiohttp import web

from paddock.errors import InvalidInput
from paddock.fleet.fleet_requests import SandboxRequest
from paddock.fleet.uplink_http_server import UplinkHttpServer
from paddock.fleet.uplink_sockets import is_from_web_page, serve_uplink_socket
from paddock.live.desktop.display_watcher import DisplayWatcher
from paddock.live.tools import mcp_messages
from paddock.live.tools.mcp_progress import EVENT_STREAM, ToolProgressNotifier
from paddock.live.tools.tool_caller import ToolCaller
from paddock.model.sandbox import Sandbox, UplinkService

NAME = "tools"
PORT = 8765
PATH = "/mcp"
ADDRESS = f"http://127.0.0.1:{PORT}{PATH}"
URL_VARIABLE = "PADDOCK_TOOLS_URL"
MAX_PENDING_BYTES = 4 * mcp_messages.MAX_REQUEST_SIZE
"""Bytes of request bodies that one sandbox may have in flight."""
BODY_TIMEOUT = 60.0
"""Seconds in which a request body must arrive."""
log = structlog.get_logger()


class BodyMemory(Protocol):
    """Memory that one request body reserves of its tenant's budget."""

    def grow(self, size: int) -> bool:
        """Reserve more bytes, and return whether enough were free."""

    def release(self) -> None:
        """Return all reserved bytes."""


class SandboxMcpServers:
    """Lifecycle hook: serve every sandbox its own tools over MCP and watch its display."""

    def __init__(self, reserve_memory: Callable[[str], BodyMemory]) -> None:
        """`reserve_memory` returns the reservation for a request body of a tenant."""
        self._reserve_memory = reserve_memory
        self._served: dict[str, _SandboxMcpServer] = {}
        self._tool_caller: ToolCaller | None = None
        self._display_watcher: DisplayWatcher | None = None

    def connect(self, tool_caller: ToolCaller, display_watcher: DisplayWatcher) -> None:
        """Set the collaborators; the fleet needs its hooks before these can be built."""
        self._tool_caller = tool_caller
        self._display_watcher = display_watcher

    @property
    def uplink_services(self) -> tuple[UplinkService, ...]:
        return (UplinkService(name=NAME, port=PORT),)

    def check_request(self, request: SandboxRequest) -> None:
        """Raise `InvalidInput` when the request claims the name or the port of this service."""
        if any(service.name == NAME or service.port == PORT for service in request.uplink_services):
            raise InvalidInput(
                f"the uplink service {NAME} and port {PORT} are reserved for the sandbox's own tools; use others"
            )

    async def environment(self, sandbox: Sandbox) -> Mapping[str, str]:
        return {URL_VARIABLE: ADDRESS}

    async def on_started(self, sandbox: Sandbox, uplinks: Path) -> None:
        """Serve the sandbox's socket, replacing one that an earlier server left behind."""
        if self._tool_caller is None or self._display_watcher is None:
            return
        server = _SandboxMcpServer(sandbox, self._tool_caller, self._reserve_memory)
        await serve_uplink_socket(server, uplinks, NAME)
        earlier = self._served.pop(sandbox.id, None)
        self._served[sandbox.id] = server
        if earlier is not None:
            await earlier.close()
        self._display_watcher.watch(sandbox)

    async def on_renewed(self, sandbox: Sandbox) -> None:
        """Do nothing: the server has no expiry of its own."""

    async def on_ended(self, sandbox_id: str) -> None:
        """Close the sandbox's socket and all connections to it."""
        server = self._served.pop(sandbox_id, None)
        if server is not None:
            await server.close()
        if self._display_watcher is not None:
            await self._display_watcher.unwatch(sandbox_id)
        if self._tool_caller is not None:
            self._tool_caller.forget_sandbox(sandbox_id)

    async def tracked_sandboxes(self) -> Collection[str]:
        return set(self._served)

    async def close(self) -> None:
        """Stop serving. The next server process serves the sandboxes again."""
        while self._served:
            await self._served.popitem()[1].close()


class _SandboxMcpServer(UplinkHttpServer):
    """MCP server for the programs of one sandbox."""

    def __init__(self, sandbox: Sandbox, tool_caller: ToolCaller, reserve_memory: Callable[[str], BodyMemory]) -> None:
        super().__init__(NAME)
        self._sandbox = sandbox
        self._tool_caller = tool_caller
        self._reserve_memory = reserve_memory
        self._pending_bytes = 0

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            with self._reserved_body() as reserve:
                return await self._respond(request, reserve)
        except mcp_messages.McpError as refusal:
            return _plain_response(refusal.response)
        except Exception:
            log.exception("unexpected error in tool call", sandbox=self._sandbox.id)
            raise

    @contextmanager
    def _reserved_body(self) -> Iterator[Callable[[int], None]]:
        """Return a function that reserves memory for further bytes of a body until the request ends.

        It raises `McpError` when the sandbox or its tenant has too many bytes in flight.
        """
        memory, size = self._reserve_memory(self._sandbox.tenant), 0

        def reserve(count: int) -> None:
            nonlocal size
            size += count
            self._pending_bytes += count
            if self._pending_bytes > MAX_PENDING_BYTES:
                raise mcp_messages.McpError(
                    429, mcp_messages.REFUSED, "too many request bytes in flight; wait for earlier calls to end"
                )
            if not memory.grow(count):
                raise mcp_messages.McpError(
                    503, mcp_messages.REFUSED, "too many large requests are under way; try again later"
                )

        try:
            yield reserve
        finally:
            self._pending_bytes -= size
            memory.release()

    async def _respond(self, request: web.BaseRequest, reserve: Callable[[int], None]) -> web.StreamResponse:
        if is_from_web_page(request.headers):
            raise mcp_messages.McpError(403, mcp_messages.REFUSED, "web pages may not call the tools of a sandbox")
        if request.path != PATH:
            raise mcp_messages.McpError(404, mcp_messages.REFUSED, f"the tools of this sandbox are at {PATH}")
        if request.method != "POST":
            refusal = mcp_messages.mcp_error_response(
                405, mcp_messages.REFUSED, "send MCP messages with POST; this server sends no messages of its own"
            )
            return _plain_response(refusal, {"Allow": "POST"})
        answer = await self._tool_caller.handle_mcp_message(
            self._sandbox.tenant,
            self._sandbox.id,
            await _read_body(request, reserve),
            request.headers.get(mcp_messages.PROTOCOL_HEADER),
            request.headers.get("accept", ""),
        )
        if isinstance(answer, ToolProgressNotifier):
            return await _stream_events(request, answer)
        return _plain_response(answer)


async def _read_body(request: web.BaseRequest, reserve: Callable[[int], None]) -> bytes:
    """Read a body until it is larger than the message parser accepts. Raises `McpError`."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            async for chunk in request.content.iter_any():
                reserve(len(chunk))
                body += chunk
                if len(body) > mcp_messages.MAX_REQUEST_SIZE:
                    break
    except TimeoutError:
        raise mcp_messages.McpError(408, mcp_messages.REFUSED, "the request body arrived too slowly") from None
    return bytes(body)


def _plain_response(answer: mcp_messages.McpResponse, headers: Mapping[str, str] | None = None) -> web.Response:
    kind = "application/json" if answer.body else None
    return web.Response(status=answer.status, body=answer.body or None, content_type=kind, headers=headers)


async def _stream_events(request: web.BaseRequest, progress: ToolProgressNotifier) -> web.StreamResponse:
    """Send the events of a tool call while it runs."""
    response = web.StreamResponse(headers={"Content-Type": EVENT_STREAM, "Cache-Control": "no-store"})
    try:
        await response.prepare(request)
        async for event in progress.events():
            await response.write(event)
    finally:
        await progress.close()
    await response.write_eof()
    return response
