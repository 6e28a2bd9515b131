"""Lifecycle hook: serves each sandbox the MCP servers that it may use, at `http://127.0.0.1:8422`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from paddock.errors import Forbidden, InvalidInput
from paddock.fleet.fleet_requests import SandboxRequest
from paddock.fleet.uplink_sockets import serve_uplink_socket
from paddock.mcp.address_policy import McpAddressPolicy
from paddock.mcp.declared_servers import (
    MCP_PROXY_ADDRESS,
    MCP_PROXY_PORT,
    SecretLookup,
    check_mcp_server,
    read_sandbox_servers,
)
from paddock.mcp.gateway.contexts import sandbox_context, sandbox_servers
from paddock.mcp.gateway.gateway import McpGateway
from paddock.mcp.serving.http_edge import McpHttpEdge
from paddock.mcp.serving.sandbox_server import MCP_UPLINK_NAME, SandboxMcpServer
from paddock.model.sandbox import Sandbox, UplinkService

MAX_SANDBOX_SESSIONS = 64
"""MCP sessions of one sandbox."""


class McpSandboxHook:
    """Serves the gateway on the uplink sockets of sandboxes."""

    def __init__(
        self, gateway: McpGateway, address_policy: McpAddressPolicy, lookup: SecretLookup = lambda name: None
    ) -> None:
        self._gateway = gateway
        self._address_policy = address_policy
        self._lookup = lookup
        self._served: dict[str, SandboxMcpServer] = {}

    @property
    def uplink_services(self) -> tuple[UplinkService, ...]:
        return (UplinkService(name=MCP_UPLINK_NAME, port=MCP_PROXY_PORT),)

    def check_request(self, request: SandboxRequest) -> None:
        """Raise `InvalidInput` for invalid servers, missing secrets, and use of this service's name or port."""
        if any(
            service.name == MCP_UPLINK_NAME or service.port == MCP_PROXY_PORT for service in request.uplink_services
        ):
            raise InvalidInput(
                f"the uplink service {MCP_UPLINK_NAME} and port {MCP_PROXY_PORT} are reserved for MCP servers; "
                "use others"
            )
        for server in read_sandbox_servers(request.extensions).values():
            if not server.url:
                continue
            check_mcp_server(server, self._lookup)
            parts = urlsplit(server.url or "")
            try:
                self._address_policy.check_address(
                    parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
                )
            except Forbidden as error:
                raise InvalidInput(f"mcp.{server.name}: {error.message}") from None

    async def environment(self, sandbox: Sandbox) -> Mapping[str, str]:
        return {} if sandbox_servers(sandbox) is None else {"PADDOCK_MCP_URL": MCP_PROXY_ADDRESS}

    async def on_started(self, sandbox: Sandbox, uplinks: Path) -> None:
        """Serve the sandbox's socket, replacing one that an earlier server left behind."""
        servers = sandbox_servers(sandbox)
        if servers is None:
            return
        self._gateway.directory.put_sandbox(sandbox.id, servers)
        edge = McpHttpEdge(self._gateway.resolve, max_sessions=MAX_SANDBOX_SESSIONS)
        server = SandboxMcpServer(edge, sandbox_context(sandbox))
        await serve_uplink_socket(server, uplinks, MCP_UPLINK_NAME)
        earlier = self._served.pop(sandbox.id, None)
        self._served[sandbox.id] = server
        if earlier is not None:
            await earlier.close()

    async def on_renewed(self, sandbox: Sandbox) -> None:
        """Do nothing: the service has no expiry of its own."""

    async def on_ended(self, sandbox_id: str) -> None:
        """Close the sandbox's socket, all connections to it, and its connections to servers."""
        served = self._served.pop(sandbox_id, None)
        if served is not None:
            await served.close()
            self._gateway.forget_sandbox(sandbox_id)

    async def tracked_sandboxes(self) -> Collection[str]:
        return set(self._served)

    async def close(self) -> None:
        """Stop serving. The next server process serves the sandboxes again."""
        while self._served:
            await self._served.popitem()[1].close()
