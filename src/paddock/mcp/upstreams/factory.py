"""Opens connections to declared servers by their kind and transport."""

from __future__ import annotations

from paddock.errors import Unsupported
from paddock.mcp.upstreams.base import Upstream, UpstreamDependencies
from paddock.mcp.upstreams.remote_server import RemoteServer
from paddock.model.mcp import McpServer


def open_upstream(server: McpServer, dependencies: UpstreamDependencies) -> Upstream:
    """Return a connection to a server, which connects on first use. Raises `InvalidInput` for an invalid address."""
    if server.url and server.transport == "grpc":
        from paddock.mcp.upstreams.grpc_gateway import GrpcGateway  # gRPC takes a while to import.

        return GrpcGateway(server, dependencies)
    if server.url:
        return RemoteServer(server, dependencies)
    raise Unsupported(f"the MCP server {server.name} is a program, and this server cannot start programs in sandboxes")
