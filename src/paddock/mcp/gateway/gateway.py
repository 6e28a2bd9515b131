"""The endpoint that a caller gets for a path, with all rules around it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from paddock.config.mcp import McpConfig
from paddock.errors import NotFound
from paddock.mcp.gateway.access import check_server_access, check_set_access, server_refusal
from paddock.mcp.gateway.aggregate import AggregateEndpoint, AggregateMember, MemberNames
from paddock.mcp.gateway.call_records import CallRecorder, RecordedEndpoint
from paddock.mcp.gateway.held_tools import HeldToolsEndpoint
from paddock.mcp.gateway.limits import GatewayLimits, LimitedEndpoint
from paddock.mcp.gateway.list_follower import ListFollower
from paddock.mcp.gateway.server_directory import DeclaredServer, DeclaredSet, ServerDirectory
from paddock.mcp.gateway.server_lists import ServerLists
from paddock.mcp.gateway.tool_rules import RuledEndpoint, ToolNames
from paddock.mcp.gateway.tool_versions import ToolVersionBook
from paddock.mcp.gateway.upstream_pool import OpenUpstream, PooledUpstream, UpstreamPool
from paddock.mcp.protocol import CallContext, McpEndpoint
from paddock.model.mcp import McpToolRules

SETS_PATH = "sets/"
"""Beginning of the paths of sets; names of servers have no slash."""


@dataclass(frozen=True, slots=True)
class ServerConnection:
    """A connection with the rules around it."""

    pooled: PooledUpstream
    endpoint: McpEndpoint
    """For clients."""
    lists: ServerLists
    names: MemberNames


class McpGateway:
    """Resolves paths to endpoints. `resolve` is quick and does not connect; close the gateway with `close`."""

    def __init__(
        self,
        settings: McpConfig,
        directory: ServerDirectory,
        open_upstream: OpenUpstream,
        *,
        versions: ToolVersionBook,
        recorder: CallRecorder,
    ) -> None:
        self._settings = settings
        self.directory = directory
        self.versions = versions
        self.recorder = recorder
        self.limits = GatewayLimits(settings)
        self.pool = UpstreamPool(open_upstream, settings.idle_timeout)
        self._connections: WeakKeyDictionary[PooledUpstream, ServerConnection] = WeakKeyDictionary()
        self._set_names: dict[tuple[str, str, str], tuple[DeclaredSet, dict[str, MemberNames]]] = {}

    def resolve(self, path: str, context: CallContext) -> McpEndpoint:
        """Return the endpoint of a server (`NAME`), of a set (`sets/NAME`), or of all servers (empty).

        Raises `NotFound`, `Forbidden` and `Conflict` with the reason.
        """
        if not path:
            return self._all_servers(context)
        if path.startswith(SETS_PATH):
            return self._set(path.removeprefix(SETS_PATH), context)
        declared = self.directory.find(path, context)
        check_server_access(declared, context)
        return self.connection(declared, context).endpoint

    def usable_servers(self, context: CallContext) -> list[DeclaredServer]:
        """Return the servers that a caller may use, sorted by name."""
        servers = self.directory.servers_of(context)
        return [servers[name] for name in sorted(servers) if server_refusal(servers[name], context) is None]

    def connection(self, declared: DeclaredServer, context: CallContext) -> ServerConnection:
        """Return the connection to a server; the caller's access was checked before."""
        pooled = self.pool.get(declared, context)
        found = self._connections.get(pooled)
        if found is None:
            found = self._connections[pooled] = self._stack(pooled)
        return found

    def forget_server(self, declared: DeclaredServer) -> None:
        """Close the connections to a server that was removed."""
        self.pool.forget_server(declared.key)

    def forget_sandbox(self, sandbox_id: str) -> None:
        """Forget the servers of a sandbox that has ended, and close their connections."""
        self.directory.remove_sandbox(sandbox_id)
        self.pool.forget_sandbox(sandbox_id)

    def refresh_lists(self, declared: DeclaredServer) -> None:
        """Read the lists of a server again on their next use, for example after held tools were approved."""
        for pooled, connection in list(self._connections.items()):
            if pooled.declared.key == declared.key:
                connection.lists.invalidate("tools/list")

    async def close(self) -> None:
        """Close all connections; write what is left of versions and records."""
        await self.pool.close()
        await self.versions.close()
        await self.recorder.close()

    def _stack(self, pooled: PooledUpstream) -> ServerConnection:
        declared = pooled.declared
        server = declared.server
        inner: McpEndpoint = pooled
        if server.hold_changes:
            # Inside of the rules: a version has the server's own names, not the names of rules.
            inner = HeldToolsEndpoint(pooled, server.name, self.versions.of_server(declared))
        ruled = RuledEndpoint(inner, server.name, ToolNames(server.tools))
        endpoint = LimitedEndpoint(RecordedEndpoint(ruled, declared, self.recorder), declared, self.limits)
        per_user = server.oauth is not None and server.oauth.per == "user"
        lists = ServerLists(ruled, default_private=per_user)
        # Listening must not keep an idle connection open, so it does not count as use.
        follower = ListFollower(pooled.upstream, lists)
        lists.on_first_fetch = follower.start
        pooled.closers += [follower.close, lists.close]
        return ServerConnection(pooled, endpoint, lists, MemberNames(server.name))

    def _all_servers(self, context: CallContext) -> McpEndpoint:
        servers = self.usable_servers(context)
        if not servers:
            raise NotFound(self._nothing_usable(context))
        members = [self._member(declared, context) for declared in servers]
        return AggregateEndpoint(
            members,
            title="Paddock",
            instructions=_describe_servers(servers),
            list_timeout=self._settings.list_timeout,
        )

    def _set(self, name: str, context: CallContext) -> McpEndpoint:
        declared_set = self.directory.find_set(name, context)
        chosen = declared_set.set
        check_set_access(name, chosen.access, context)
        names = self._names_of_set(declared_set)
        servers = []
        for server_name in chosen.servers:
            declared = self.directory.find(server_name, context)
            check_server_access(declared, context)
            servers.append(declared)
        members = [self._member(declared, context, names[declared.name]) for declared in servers]
        return AggregateEndpoint(
            members,
            title=chosen.name,
            instructions=chosen.description or _describe_servers(servers),
            list_timeout=self._settings.list_timeout,
        )

    def _member(
        self, declared: DeclaredServer, context: CallContext, names: MemberNames | None = None
    ) -> AggregateMember:
        connection = self.connection(declared, context)
        return AggregateMember(names=names or connection.names, endpoint=connection.endpoint, lists=connection.lists)

    def _names_of_set(self, declared: DeclaredSet) -> Mapping[str, MemberNames]:
        key = (declared.source, declared.owner, declared.set.name)
        found = self._set_names.get(key)
        if found is None or found[0].set != declared.set:
            names = {
                server: MemberNames(server, ToolNames(McpToolRules(allow=rules.allow, deny=rules.deny)), rules.rename)
                for server, rules in declared.set.servers.items()
            }
            found = self._set_names[key] = declared, names
        return found[1]

    def _nothing_usable(self, context: CallContext) -> str:
        servers = self.directory.servers_of(context)
        if not servers:
            return "There is no MCP server; declare one with `paddock mcp add` or in mcp.servers."
        reasons = "; ".join(f"{name}: {server_refusal(each, context)}" for name, each in sorted(servers.items())[:20])
        return f"There is no MCP server that you may use here: {reasons}."


def _describe_servers(servers: Iterable[DeclaredServer]) -> str:
    lines = [f"- {each.name}: {each.server.description or 'no description'}" for each in servers]
    return "Tools of these MCP servers, each with the name of its server in front:\n" + "\n".join(lines)
