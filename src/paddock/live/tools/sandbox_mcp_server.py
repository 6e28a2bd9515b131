"""Serves each sandbox's own tools over MCP to the programs in that sandbox.

In a sandbox the tools are at `http://127.0.0.1:8765/mcp`. No key is needed: the socket behind the address belongs to
that sandbox alone. As for clients outside, calls that use mouse or keyboard wait while a person has taken over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from pathlib import Path

import structlog
from aiohttp import web

from paddock.errors import InvalidInput
from paddock.fleet.fleet_requests import SandboxRequest
from paddock.fleet.uplink_http_server import UplinkHttpServer
from paddock.fleet.uplink_sockets import is_from_web_page, publish_uplink_socket
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


class SandboxMcpServers:
    """Lifecycle hook: serve every sandbox its own tools over MCP and watch its display."""

    def __init__(self) -> None:
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
        server = _SandboxMcpServer(sandbox, self._tool_caller)
        try:
            async with publish_uplink_socket(uplinks, NAME) as bound:
                await server.listen(bound)
        except BaseException:
            await server.close()
            raise
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

    def __init__(self, sandbox: Sandbox, tool_caller: ToolCaller) -> None:
        super().__init__(NAME)
        self._sandbox = sandbox
        self._tool_caller = tool_caller
        self._pending_bytes = 0

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            answer, headers = await self._answer(request), {}
            if isinstance(answer, mcp_messages.McpResponse) and answer.status == 405:
                headers["Allow"] = "POST"
        except TimeoutError:
            answer, headers = (
                mcp_messages.mcp_error_response(408, mcp_messages.REFUSED, "the request body arrived too slowly"),
                {},
            )
        except Exception:
            log.exception("unexpected error in tool call", sandbox=self._sandbox.id)
            raise
        if isinstance(answer, ToolProgressNotifier):
            return await _stream_events(request, answer)
        kind = "application/json" if answer.body else None
        return web.Response(status=answer.status, body=answer.body or None, content_type=kind, headers=headers)

    async def _answer(self, request: web.BaseRequest) -> mcp_messages.McpResponse | ToolProgressNotifier:
        if is_from_web_page(request.headers):
            return mcp_messages.mcp_error_response(
                403, mcp_messages.REFUSED, "web pages may not call the tools of a sandbox"
            )
        if request.path != PATH:
            return mcp_messages.mcp_error_response(
                404, mcp_messages.REFUSED, f"the tools of this sandbox are at {PATH}"
            )
        if request.method != "POST":
            return mcp_messages.mcp_error_response(
                405, mcp_messages.REFUSED, "send MCP messages with POST; this server sends no messages of its own"
            )
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_TIMEOUT):
                async for chunk in request.content.iter_any():
                    body += chunk
                    self._pending_bytes += len(chunk)
                    if self._pending_bytes > MAX_PENDING_BYTES:
                        return mcp_messages.mcp_error_response(
                            429, mcp_messages.REFUSED, "too many request bytes in flight; wait for earlier calls to end"
                        )
                    if len(body) > mcp_messages.MAX_REQUEST_SIZE:
                        break  # The message parser rejects bodies that are too large.
            version = request.headers.get(mcp_messages.PROTOCOL_HEADER)
            return await self._tool_caller.handle_mcp_message(
                self._sandbox.tenant, self._sandbox.id, bytes(body), version, request.headers.get("accept", "")
            )
        finally:
            self._pending_bytes -= len(body)


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
