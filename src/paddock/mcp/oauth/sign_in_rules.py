"""Which servers want sign-ins, and for which subject a sign-in counts."""

from __future__ import annotations

from paddock.model.mcp import McpKind, McpServer


def uses_oauth(server: McpServer) -> bool:
    """Return whether callers of a server may have to sign in."""
    if server.oauth is not None:
        return True
    has_header = any(name.lower() == "authorization" for name in server.headers)
    return server.sort is McpKind.INTERNET and not has_header and server.transport != "grpc"


def is_shared_sign_in(server: McpServer) -> bool:
    """Return whether one sign-in counts for the whole tenant."""
    oauth = server.oauth
    return oauth is not None and (oauth.per == "tenant" or oauth.grant == "client_credentials")
