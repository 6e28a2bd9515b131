"""Opens connections to declared servers by their kind and transport."""

from __future__ import annotations

from paddock.mcp.upstreams.base import Upstream, UpstreamDependencies
from paddock.mcp.upstreams.http.remote_server import RemoteServer
from paddock.mcp.upstreams.programs.program_server import ProgramServer
from paddock.model.mcp import McpServer


def open_upstream(server: McpServer, dependencies: UpstreamDependencies) -> Upstream:
    """Return a connection to a server, which connects on first use. Raises `InvalidInput` for an invalid address."""
    if not server.url:
        return ProgramServer(server, dependencies)
    if server.transport == "grpc":
        from paddock.mcp.upstreams.grpc_gateway import GrpcGateway  # gRPC takes a while to import.

        return GrpcGateway(server, dependencies)
    return RemoteServer(server, dependencies)
