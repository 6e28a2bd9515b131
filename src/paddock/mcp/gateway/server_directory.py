"""The declared MCP servers and sets: of the configuration, of tenants, and of the tasks of sandboxes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from paddock.errors import InvalidInput, NotFound
from paddock.mcp.protocol import CallContext
from paddock.model.mcp import McpKind, McpServer, McpSet

DeclarationSource = Literal["file", "tenant", "sandbox"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredServer:
    """A server, and where it was declared."""

    server: McpServer
    source: DeclarationSource
    owner: str = ""
    """The tenant or the sandbox."""

    @property
    def name(self) -> str:
        return self.server.name

    @property
    def key(self) -> tuple[str, str, str]:
        """Identity of the server; the same name may be declared by several tenants and tasks."""
        return self.source, self.owner, self.server.name

    @property
    def is_local(self) -> bool:
        return self.server.sort is McpKind.LOCAL


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredSet:
    """A set, and where it was declared."""

    set: McpSet
    source: DeclarationSource
    owner: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxServers:
    """The servers that programs in a sandbox may use."""

    servers: Mapping[str, McpServer] = field(default_factory=dict)
    """Servers of its task, by name."""
    references: frozenset[str] | None = frozenset()
    """Names of servers that are declared elsewhere; None stands for all that its owner may use."""


class ServerDirectory:
    """Finds declared servers by name. Holds all declarations in memory."""

    def __init__(self, servers: Iterable[McpServer] = (), sets: Iterable[McpSet] = ()) -> None:
        self._file = {each.name: DeclaredServer(server=each, source="file") for each in servers}
        self._file_sets = {each.name: DeclaredSet(set=each, source="file") for each in sets}
        self._tenants: dict[str, dict[str, DeclaredServer]] = {}
        self._tenant_sets: dict[str, dict[str, DeclaredSet]] = {}
        self._sandboxes: dict[str, SandboxServers] = {}
        self.generation = 0
        """Increases with each change."""

    def is_in_file(self, name: str) -> bool:
        return name in self._file

    def is_set_in_file(self, name: str) -> bool:
        return name in self._file_sets

    def put(self, tenant: str, server: McpServer) -> DeclaredServer:
        """Add or replace a server of a tenant."""
        declared = DeclaredServer(server=server, source="tenant", owner=str(tenant))
        self._tenants.setdefault(str(tenant), {})[server.name] = declared
        self.generation += 1
        return declared

    def remove(self, tenant: str, name: str) -> None:
        self._tenants.get(tenant, {}).pop(name, None)
        self.generation += 1

    def put_set(self, tenant: str, chosen: McpSet) -> None:
        self._tenant_sets.setdefault(str(tenant), {})[chosen.name] = DeclaredSet(
            set=chosen, source="tenant", owner=str(tenant)
        )
        self.generation += 1

    def remove_set(self, tenant: str, name: str) -> None:
        self._tenant_sets.get(tenant, {}).pop(name, None)
        self.generation += 1

    def put_sandbox(self, sandbox_id: str, servers: SandboxServers) -> None:
        self._sandboxes[sandbox_id] = servers
        self.generation += 1

    def remove_sandbox(self, sandbox_id: str) -> None:
        self._sandboxes.pop(sandbox_id, None)
        self.generation += 1

    def file_servers(self) -> list[DeclaredServer]:
        """Return the servers of the configuration, sorted by name."""
        return [self._file[name] for name in sorted(self._file)]

    def all_servers(self) -> Iterator[McpServer]:
        """Iterate over all declarations of all tenants and sandboxes."""
        for declared in [self._file, *self._tenants.values()]:
            yield from (each.server for each in declared.values())
        for attached in self._sandboxes.values():
            yield from attached.servers.values()

    @property
    def sandbox_ids(self) -> frozenset[str]:
        return frozenset(self._sandboxes)

    def servers_of(self, context: CallContext) -> dict[str, DeclaredServer]:
        """Return all servers that exist for a caller, by name; access rules are not checked.

        A task's own server hides others of its name, and a tenant's server hides none of the configuration.
        """
        found = {**self._tenants.get(context.tenant, {}), **self._file}
        if context.origin == "sandbox" and context.sandbox is not None:
            attached = self._sandboxes.get(context.sandbox, SandboxServers())
            if attached.references is not None:
                found = {name: each for name, each in found.items() if name in attached.references}
            for name, server in attached.servers.items():
                found[name] = DeclaredServer(server=server, source="sandbox", owner=context.sandbox)
        return found

    def find(self, name: str, context: CallContext) -> DeclaredServer:
        """Return the server of a name. Raises `NotFound`, which names the servers that exist for the caller."""
        servers = self.servers_of(context)
        if (found := servers.get(name)) is not None:
            return found
        known = ", ".join(sorted(servers)[:20]) or "none"
        place = "for this sandbox" if context.origin == "sandbox" else f"for tenant {context.tenant}"
        raise NotFound(f"There is no MCP server {name[:80]!r} {place}; available: {known}.")

    def sets_of(self, context: CallContext) -> dict[str, DeclaredSet]:
        return {**self._tenant_sets.get(context.tenant, {}), **self._file_sets}

    def find_set(self, name: str, context: CallContext) -> DeclaredSet:
        """Return the set of a name. Raises `NotFound`."""
        sets = self.sets_of(context)
        if (found := sets.get(name)) is not None:
            return found
        known = ", ".join(sorted(sets)[:20]) or "none"
        raise NotFound(f"There is no set of MCP tools {name[:80]!r}; available: {known}.")

    def check_names(self, names: Iterable[str], context: CallContext) -> None:
        """Raise `InvalidInput` for names of servers that do not exist for the caller."""
        servers = self.servers_of(context)
        for name in names:
            if name not in servers:
                known = ", ".join(sorted(servers)[:20]) or "none"
                message = f"mcp: there is no MCP server {name[:80]!r}; available: {known}"
                raise InvalidInput(message, params={"server": name[:80], "known": known})
