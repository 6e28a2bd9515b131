"""Contexts of callers: their identity for access rules, limits and records."""

from __future__ import annotations

from paddock.mcp.declared_servers import AGENT_EXTENSION, ALL_SERVERS_EXTENSION, read_sandbox_servers
from paddock.mcp.gateway.server_directory import SandboxServers
from paddock.mcp.protocol import CallContext
from paddock.mcp.protocol.endpoint import Origin
from paddock.model.keys import Principal
from paddock.model.sandbox import RUN_KEY, SESSION_KEY, Sandbox


def principal_context(principal: Principal, origin: Origin = "http") -> CallContext:
    """Return the context of an authenticated request."""
    user = principal.subject.removeprefix("user:") if principal.subject.startswith("user:") else ""
    names = tuple(name for name in (user, principal.name) if name)
    return CallContext(tenant=str(principal.tenant), caller=principal.subject, names=names, origin=origin)


def sandbox_context(sandbox: Sandbox) -> CallContext:
    """Return the context of programs in a sandbox: they act for its owner."""
    names = tuple(name for name in (sandbox.created_by,) if name)
    return CallContext(
        tenant=str(sandbox.tenant),
        caller=sandbox.subject or f"sandbox:{sandbox.id}",
        names=names,
        agent=sandbox.extensions.get(AGENT_EXTENSION),
        origin="sandbox",
        sandbox=sandbox.id,
        run=sandbox.metadata.get(RUN_KEY),
        session=sandbox.metadata.get(SESSION_KEY),
    )


def sandbox_servers(sandbox: Sandbox) -> SandboxServers | None:
    """Return the servers that programs in a sandbox may use; None if there are none. Raises `InvalidInput`."""
    declared = read_sandbox_servers(sandbox.extensions)
    own = {name: server for name, server in declared.items() if not server.is_reference}
    names = frozenset(declared.keys() - own.keys())
    if sandbox.extensions.get(ALL_SERVERS_EXTENSION) == "true":
        return SandboxServers(servers=own, references=None)
    return SandboxServers(servers=own, references=names) if declared else None
