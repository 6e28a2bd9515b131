"""Decides if a caller may use an MCP server or a set, and gives the reason if not."""

from __future__ import annotations

from paddock.errors import Conflict, Forbidden
from paddock.mcp.gateway.server_directory import DeclaredServer
from paddock.mcp.protocol import CallContext
from paddock.model.mcp import McpAccess

_USER_PREFIX = "user:"


def access_refusal(access: McpAccess, context: CallContext) -> str | None:
    """Return why a caller is refused, or None. Empty lists do not restrict."""
    if access.tenants and context.tenant not in access.tenants:
        return f"tenant {context.tenant} is not in its access.tenants"
    if access.users:
        names = {context.caller, context.caller.removeprefix(_USER_PREFIX), *context.names}
        if names.isdisjoint(access.users):
            return f"{context.names[0] if context.names else context.caller} is not in its access.users"
    if access.agents and context.agent not in access.agents:
        caller = f"the agent {context.agent}" if context.agent else "a caller that is not an agent of Paddock"
        return f"{caller} is not in its access.agents"
    return None


def server_refusal(declared: DeclaredServer, context: CallContext) -> str | None:
    """Return why a caller cannot use a server, or None."""
    if (reason := access_refusal(declared.server.access, context)) is not None:
        return reason
    if declared.is_local and context.sandbox is None:
        return "it runs in a sandbox: name one by ?sandbox=ID, or call it from a sandbox, a run or a chat"
    return None


def check_server_access(declared: DeclaredServer, context: CallContext) -> None:
    """Raise `Forbidden` or `Conflict` with the reason if a caller cannot use a server."""
    if (reason := access_refusal(declared.server.access, context)) is not None:
        raise Forbidden(f"The MCP server {declared.name} may not be used: {reason}.")
    if (reason := server_refusal(declared, context)) is not None:
        raise Conflict(f"The MCP server {declared.name} cannot be used here: {reason}.")


def check_set_access(name: str, access: McpAccess, context: CallContext) -> None:
    """Raise `Forbidden` with the reason if a caller may not use a set."""
    if (reason := access_refusal(access, context)) is not None:
        raise Forbidden(f"The set of MCP tools {name} may not be used: {reason}.")
