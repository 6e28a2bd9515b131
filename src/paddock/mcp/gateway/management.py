"""Adds, changes and removes the servers and sets of tenants. Configured servers and sets are read-only here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from paddock.errors import Conflict, Forbidden, InvalidInput, NotFound
from paddock.mcp.declared_servers import LOOPBACK_NAMES, SecretLookup, check_mcp_server, referenced_secrets
from paddock.mcp.gateway.gateway import McpGateway
from paddock.mcp.gateway.server_directory import DeclaredServer, DeclaredSet
from paddock.mcp.protocol import CallContext
from paddock.model.mcp import McpKind, McpServer, McpSet
from paddock.model.mcp_records import StoredMcpServer, StoredMcpSet
from paddock.store.mcp_server_store import McpServerStore

if TYPE_CHECKING:
    # Commands without a server import this module, and the policy's base class takes a while to import.
    from paddock.mcp.address_policy import McpAddressPolicy

HIDDEN_VALUE = "***"
"""Stands for a header's or variable's value that is not shown; a change that has it keeps the stored value."""
_CLIENT_SECRETS = ("client_secret", "private_key")
MAX_SERVERS = 500
"""Servers, and sets, of one tenant."""


class McpServerManagement:
    """Servers and sets of tenants, in the store and in the gateway's directory."""

    def __init__(
        self,
        store: McpServerStore,
        gateway: McpGateway,
        *,
        secrets: SecretLookup,
        may_use_secrets: Callable[[str], bool],
        address_policy: McpAddressPolicy,
    ) -> None:
        self._store = store
        self._gateway = gateway
        self._directory = gateway.directory
        self._secrets = secrets
        self._may_use_secrets = may_use_secrets
        self._address_policy = address_policy
        self._stored: dict[tuple[str, str], StoredMcpServer] = {}
        self._stored_sets: dict[tuple[str, str], StoredMcpSet] = {}

    async def load(self) -> None:
        """Read the stored servers and sets."""
        for server in await self._store.list_servers():
            self._stored[server.tenant, server.name] = server
            self._directory.put(server.tenant, server.document)
        for chosen in await self._store.list_sets():
            self._stored_sets[chosen.tenant, chosen.name] = chosen
            self._directory.put_set(chosen.tenant, chosen.document)

    def stored_server(self, declared: DeclaredServer) -> StoredMcpServer | None:
        """Return the stored form of a tenant's server; None for others."""
        return self._stored.get((declared.owner, declared.name)) if declared.source == "tenant" else None

    async def put_server(
        self, context: CallContext, server: McpServer, created_by: str | None, *, replace: bool
    ) -> DeclaredServer:
        """Add or replace a server of a tenant. Raises `Conflict`, `NotFound` and `InvalidInput`."""
        tenant, name = context.tenant, server.name
        self._refuse_server_of_file(name)
        earlier = self._stored.get((tenant, name))
        if replace and earlier is None:
            raise NotFound(f"There is no MCP server {name!r}; add it first.")
        if earlier is not None and not replace:
            raise Conflict(f"There is an MCP server {name!r} already; change it, or take another name.")
        if earlier is None:
            self._check_count(tenant, self._stored)
        else:
            server = _with_hidden_values(server, earlier.document)
        self.check_server(tenant, server)
        now = datetime.now(UTC)
        stored = StoredMcpServer(
            tenant=tenant,
            name=name,
            document=server,
            created_by=created_by if earlier is None else earlier.created_by,
            created_at=now if earlier is None else earlier.created_at,
            changed_at=now,
        )
        await self._store.put_server(stored)
        self._stored[tenant, name] = stored
        return self._directory.put(tenant, server)

    async def remove_server(self, context: CallContext, name: str) -> DeclaredServer:
        """Remove and return a server of a tenant. Raises `Conflict` and `NotFound`."""
        self._refuse_server_of_file(name)
        declared = self._directory.find(name, context)
        if declared.source != "tenant":
            raise Conflict(f"The MCP server {name!r} belongs to the task of a sandbox and ends with it.")
        using = [
            each.set.name
            for each in self._directory.sets_of(context).values()
            if each.source == "tenant" and name in each.set.servers
        ]
        if using:
            raise Conflict(f"The MCP server {name!r} is in the set {using[0]!r}; change the set first.")
        await self._store.delete_server(context.tenant, name)
        self._stored.pop((context.tenant, name), None)
        self._directory.remove(context.tenant, name)
        self._gateway.forget_server(declared)
        self._gateway.versions.forget(declared)
        return declared

    async def put_set(
        self, context: CallContext, chosen: McpSet, created_by: str | None, *, replace: bool
    ) -> DeclaredSet:
        """Add or replace a set of a tenant. Raises `Conflict`, `NotFound` and `InvalidInput`."""
        tenant, name = context.tenant, chosen.name
        self._refuse_set_of_file(name)
        earlier = self._stored_sets.get((tenant, name))
        if replace and earlier is None:
            raise NotFound(f"There is no set of MCP tools {name!r}; add it first.")
        if earlier is not None and not replace:
            raise Conflict(f"There is a set of MCP tools {name!r} already; change it, or take another name.")
        if earlier is None:
            self._check_count(tenant, self._stored_sets)
        self._directory.check_names(chosen.servers, context)
        now = datetime.now(UTC)
        stored = StoredMcpSet(
            tenant=tenant,
            name=name,
            document=chosen,
            created_by=created_by if earlier is None else earlier.created_by,
            created_at=now if earlier is None else earlier.created_at,
            changed_at=now,
        )
        await self._store.put_set(stored)
        self._stored_sets[tenant, name] = stored
        self._directory.put_set(tenant, chosen)
        return self._directory.find_set(name, context)

    async def remove_set(self, context: CallContext, name: str) -> None:
        """Remove a set of a tenant. Raises `Conflict` and `NotFound`."""
        self._refuse_set_of_file(name)
        self._directory.find_set(name, context)
        await self._store.delete_set(context.tenant, name)
        self._stored_sets.pop((context.tenant, name), None)
        self._directory.remove_set(context.tenant, name)

    def check_server(self, tenant: str, server: McpServer) -> None:
        """Raise `InvalidInput` for an address or a header that cannot be used."""
        named = referenced_secrets([server])
        if named and not self._may_use_secrets(tenant):
            raise InvalidInput(
                f"mcp.{server.name}: tenant {tenant} may name no secrets; runs.secrets_for says whose may"
            )
        if server.access.tenants and tenant not in server.access.tenants:
            raise InvalidInput(f"access.tenants: the server belongs to tenant {tenant}; leave the list out")
        if not server.url:
            return
        check_mcp_server(server, self._secrets)
        parts = urlsplit(server.url)
        if server.kind is McpKind.INTERNET and parts.scheme != "https" and parts.hostname not in LOOPBACK_NAMES:
            raise InvalidInput(f"mcp.{server.name}: a server of the kind internet has an https address")
        try:
            self._address_policy.check_address(
                parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
            )
        except Forbidden as error:
            raise InvalidInput(f"mcp.{server.name}: {error.message}") from None

    def _refuse_server_of_file(self, name: str) -> None:
        if self._directory.is_in_file(name):
            raise Conflict(
                f"The MCP server {name!r} is declared in the configuration file (paddock.yaml, mcp.servers); "
                "change it there and restart the server."
            )

    def _refuse_set_of_file(self, name: str) -> None:
        if self._directory.is_set_in_file(name):
            raise Conflict(
                f"The set {name!r} is declared in the configuration file (paddock.yaml, mcp.sets); "
                "change it there and restart the server."
            )

    @staticmethod
    def _check_count(tenant: str, stored: Mapping[tuple[str, str], object]) -> None:
        if sum(owner == tenant for owner, _ in stored) >= MAX_SERVERS:
            raise Conflict(f"A tenant may have {MAX_SERVERS} of them; remove one first.")


def shown_declaration(server: McpServer) -> dict[str, object]:
    """Return a declaration as it may be shown: values without a reference to a secret are hidden."""
    document: dict[str, object] = server.model_dump(mode="json", exclude_defaults=True)
    document["kind"] = server.sort.value
    for field, values in (("headers", server.headers), ("env", server.env)):
        if values:
            document[field] = {name: value if "${" in value else HIDDEN_VALUE for name, value in values.items()}
    if server.url is not None:
        document["url"] = _shown_url(server.url)
    if server.oauth is not None:
        shown = server.oauth.model_dump(mode="json", exclude_defaults=True)
        document["oauth"] = shown | {
            name: HIDDEN_VALUE for name in _CLIENT_SECRETS if name in shown and "${" not in shown[name]
        }
    return document


def _shown_url(url: str) -> str:
    parts = urlsplit(url)
    return url if not parts.query else f"{url.partition('?')[0]}?{HIDDEN_VALUE}"


def _with_hidden_values(server: McpServer, earlier: McpServer) -> McpServer:
    """Return a changed declaration with hidden values taken from the earlier one."""
    updates: dict[str, object] = {}
    is_same = server.url in (earlier.url, _shown_url(earlier.url or "")) if server.url else not earlier.url
    is_same = is_same and server.command == earlier.command and server.transport == earlier.transport

    def check_same(field: str) -> None:
        if not is_same:
            # Otherwise a caller could send a secret that they may not see to a server of their own.
            raise InvalidInput(f"{field}: write the hidden values again, because the address or command changes")

    for field in ("headers", "env"):
        former: Mapping[str, str] = getattr(earlier, field)
        values: Mapping[str, str] = getattr(server, field)
        if HIDDEN_VALUE in values.values():
            check_same(field)
            updates[field] = {
                name: former.get(name, value) if value == HIDDEN_VALUE else value for name, value in values.items()
            }
    if server.url is not None and earlier.url is not None and server.url == _shown_url(earlier.url):
        updates["url"] = earlier.url
    if server.oauth is not None and earlier.oauth is not None:
        hidden = [name for name in _CLIENT_SECRETS if getattr(server.oauth, name) == HIDDEN_VALUE]
        for name in hidden:
            check_same(f"oauth.{name}")
            if server.oauth.issuer != earlier.oauth.issuer:
                raise InvalidInput(f"oauth.{name}: write the hidden value again, because the issuer changes")
        updates["oauth"] = server.oauth.model_copy(update={name: getattr(earlier.oauth, name) for name in hidden})
    return server.model_copy(update=updates)
