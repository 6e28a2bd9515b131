"""Opens the gateway with all that belongs to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import replace

from paddock.auth.sealing import SecretSealer
from paddock.config.mcp import McpConfig
from paddock.events.event_log import EventLog
from paddock.mcp.gateway.call_records import CallRecorder
from paddock.mcp.gateway.gateway import McpGateway
from paddock.mcp.gateway.management import McpServerManagement
from paddock.mcp.gateway.server_directory import ServerDirectory
from paddock.mcp.gateway.services import McpServices
from paddock.mcp.gateway.tool_versions import ToolVersionBook
from paddock.mcp.oauth.oauth_http import OAuthClients
from paddock.mcp.oauth.sign_ins import McpSignIns
from paddock.mcp.upstreams.base import UpstreamDependencies
from paddock.mcp.upstreams.factory import open_upstream
from paddock.model.mcp import McpServer
from paddock.model.mcp_records import McpCallRecord
from paddock.store.database import Store
from paddock.store.mcp_call_store import McpCallStore
from paddock.store.mcp_oauth_store import McpOAuthStore
from paddock.store.mcp_server_store import McpServerStore

MakeMask = Callable[[Iterable[str]], Callable[[str], str]]
"""Returns a function that masks some secrets in texts."""


async def open_mcp_services(
    settings: McpConfig,
    store: Store,
    events: EventLog,
    dependencies: UpstreamDependencies,
    held: AsyncExitStack,
    *,
    make_mask: MakeMask,
    sealer: SecretSealer,
    secrets: Iterable[str] = (),
    may_use_secrets: Callable[[str], bool] = lambda tenant: True,
    export: Callable[[McpCallRecord], None] | None = None,
) -> McpServices:
    """Open the gateway; it is closed with `held`. `secrets` are masked in records."""
    server_store, calls = McpServerStore(store), McpCallStore(store)
    known_secrets = tuple(secrets)
    oauth_clients = OAuthClients(dependencies.client, dependencies.internet_client)
    sign_ins = await McpSignIns.open(McpOAuthStore(store), sealer, oauth_clients, dependencies.secrets)
    held.push_async_callback(sign_ins.close)
    dependencies = replace(dependencies, credentials=sign_ins.credentials)
    recorder = CallRecorder(calls, events, record_size=settings.record_size, keep=settings.keep_calls, export=export)
    versions = ToolVersionBook(server_store, events, approve_new=settings.approve_new_tools)
    await versions.load()
    directory = ServerDirectory(settings.servers, settings.sets)
    gateway = McpGateway(
        settings,
        directory,
        lambda server: open_upstream(server, dependencies),
        versions=versions,
        recorder=recorder,
    )
    management = McpServerManagement(
        server_store,
        gateway,
        secrets=dependencies.secrets,
        may_use_secrets=may_use_secrets,
        address_policy=dependencies.client.address_policy,
    )
    await management.load()
    mask = _DirectoryMask(directory, known_secrets, make_mask)
    recorder.mask = mask
    recorder.open()
    held.push_async_callback(gateway.close)
    return McpServices(gateway, management, calls, sign_ins)


class _DirectoryMask:
    """Masks the secrets of the server and the values in declarations; follows changes of declarations."""

    def __init__(self, directory: ServerDirectory, secrets: tuple[str, ...], make_mask: MakeMask) -> None:
        self._directory = directory
        self._secrets = secrets
        self._make_mask = make_mask
        self._generation = -1
        self._mask: Callable[[str], str] = str

    def __call__(self, text: str) -> str:
        if self._generation != self._directory.generation:
            self._generation = self._directory.generation
            declared = {value for server in self._directory.all_servers() for value in secret_values(server)}
            self._mask = self._make_mask([*self._secrets, *declared])
        return self._mask(text)


def secret_values(server: McpServer) -> set[str]:
    """Return values of a declaration that may be secret: of headers, without their scheme, and of variables."""
    values = {value for value in server.headers.values() if "${" not in value}
    found = {value.partition(" ")[2] or value for value in values} | values
    found |= {value for name, value in server.env.items() if _names_secret(name) and "${" not in value}
    if server.oauth is not None:
        clients = (server.oauth.client_secret, server.oauth.private_key)
        found |= {value for value in clients if value and "${" not in value}
    return {value for value in found if len(value) >= 8}


def _names_secret(name: str) -> bool:
    return any(word in name.upper() for word in ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL"))
