"""All components of one server, opened and closed together."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from functools import cached_property
from pathlib import Path
from typing import Self

import structlog
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from paddock.agents.engines.registry import EngineDependencies
from paddock.agents.model.sandbox_spending import SandboxSpending
from paddock.agents.session_service_factory import open_session_service
from paddock.agents.sessions.session_service import SessionService
from paddock.api.application import create_api_app
from paddock.api.services import ApiServices
from paddock.app.components import (
    create_image_store,
    create_sandbox_backend,
    measure_event_loop_time,
    open_model_gateway,
    secret_lookup,
)
from paddock.auth.api_keys import ApiKeys
from paddock.auth.logins import BrowserLogins
from paddock.auth.preview_links import PreviewLinkSigner
from paddock.auth.sealing import SecretSealer
from paddock.config.outgoing_proxy import OutgoingProxies, check_ca_bundle
from paddock.config.schema import Config
from paddock.events.event_log import EventLog
from paddock.fleet.fleet import Fleet
from paddock.fleet.port_previews import PortPreviews
from paddock.fleet.reconciler import Reconciler
from paddock.live.android_devices import AndroidDevices
from paddock.live.services import LiveServices
from paddock.live.tools.sandbox_mcp_server import SandboxMcpServers
from paddock.llm.demo import add_demo_model
from paddock.llm.gateway.gateway import ModelGateway
from paddock.llm.gateway.sandbox_access import SandboxModelAccess
from paddock.llm.wire.descriptor_guard import FileDescriptorGuard
from paddock.llm.wire.http_server import HttpServer
from paddock.mcp.address_policy import McpAddressPolicy
from paddock.mcp.gateway.chat_tools import ChatTools
from paddock.mcp.gateway.factory import open_mcp_services
from paddock.mcp.gateway.services import McpServices
from paddock.mcp.http_client import McpHttpClient
from paddock.mcp.serving.http_edge import McpHttpEdge
from paddock.mcp.serving.sandbox_hook import McpSandboxHook
from paddock.mcp.upstreams.base import UpstreamDependencies
from paddock.mcp.upstreams.programs.sandbox_programs import SandboxPrograms
from paddock.network.addresses import TargetAddresses
from paddock.network.connection_history import ConnectionHistory
from paddock.network.connection_recorder import ConnectionRecorder
from paddock.network.daily_bytes import DailyByteCounts
from paddock.network.sandbox_networks import SandboxNetworks
from paddock.network.vault.credential_vaults import CredentialVaults
from paddock.network.vault.vault_sealing import VaultSealer
from paddock.runs.execution.run_service_dependencies import RunServiceDependencies
from paddock.runs.output.secret_masking import SecretMasker
from paddock.runs.run_service import RunService
from paddock.sandbox.base import SandboxBackend
from paddock.sandbox.images import ImageBuildJobs, ImageStore
from paddock.store.byte_count_store import ByteCountStore
from paddock.store.connection_store import ConnectionStore
from paddock.store.data_lock import DataDirectoryLock
from paddock.store.database import Store
from paddock.store.key_store import ApiKeyStore
from paddock.store.login_store import LoginStore
from paddock.store.model_exchanges.usage_series import UsageSeriesStore
from paddock.store.object_counts import ObjectCounts
from paddock.store.preview_store import PreviewStore
from paddock.store.vault_store import CredentialVaultStore
from paddock.telemetry.event_loop_monitor import EventLoopMonitor
from paddock.telemetry.log_buffer import LogBuffer

DATABASE_FILE = "paddock.db"
LOCAL_KEY_FILE = "local.key"
PREVIEW_KEY_FILE = "preview.key"
VAULT_KEY_FILE = "vault.key"
SERVER_FILE = "server.json"
MAX_MODEL_CONNECTIONS = 20_000
log = structlog.get_logger()


class PaddockServer:
    """All components of one server, open within `async with`. Sandboxes keep running after it closes."""

    config: Config
    store: Store
    events: EventLog
    keys: ApiKeys
    images: ImageStore
    backend: SandboxBackend
    fleet: Fleet
    gateway: ModelGateway
    model_server: HttpServer
    loop: EventLoopMonitor
    mcp_addresses: McpAddressPolicy
    mcp: McpServices
    networks: SandboxNetworks
    live: LiveServices
    runs: RunService
    sessions: SessionService
    services: ApiServices

    def __init__(self, config: Config, log: LogBuffer | None = None) -> None:
        self.log = log or LogBuffer()
        self.config = config.model_copy(update={"llm": add_demo_model(config.llm)})
        self.descriptors = FileDescriptorGuard()
        self._held = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as held:
            proxies = self.config.outgoing.proxies(os.environ)
            check_ca_bundle(proxies.ca_bundle)
            held.enter_context(DataDirectoryLock.acquire(self.config.data))
            # A killed server leaves its URL, where another program may listen by now.
            (self.config.data / SERVER_FILE).unlink(missing_ok=True)
            self.store = await held.enter_async_context(await Store.open(self.config.data / DATABASE_FILE))
            self.events = await EventLog.open(self.store)
            held.callback(self.events.close)
            self.keys = ApiKeys(ApiKeyStore(self.store))
            self.gateway = await open_model_gateway(
                self.config.llm,
                self.store,
                self.keys,
                held,
                default_model=self.config.chat.model,
                secrets=[each.get_secret_value() for each in self.config.runs.secrets.values()],
                proxies=proxies,
            )
            spending = SandboxSpending(self.store, self.events, self.config.chat.budget)
            held.push_async_callback(spending.close)
            self.gateway.spending_accounts.append(spending)
            self.images = create_image_store(self.config)
            self.backend = await asyncio.to_thread(create_sandbox_backend, self.config)
            held.push_async_callback(self.backend.close)
            settings = self.config.llm
            self.loop = EventLoopMonitor(cpu=self.config.log.level == "debug")
            self.loop.skip_tasks_of(RequestResponseCycle.run_asgi)
            self.loop.start()
            held.callback(self.loop.stop)
            self.model_server = HttpServer(
                measure_event_loop_time(self.gateway, self.loop),
                max_body=settings.max_body,
                max_connections=MAX_MODEL_CONNECTIONS,
                memory_budget=self.gateway.memory_budget,
                admit_body=self.gateway.admit_body,
                measure=self.loop.call,
                guard=self.descriptors,
            )
            held.push_async_callback(self.model_server.close, self.config.server.shutdown_grace)
            memory = self.gateway.tenant_memory
            sandboxes = SandboxModelAccess(settings, self.keys, self.model_server, self.gateway.catalog, memory)
            held.push_async_callback(sandboxes.close)
            self.mcp_addresses = McpAddressPolicy(self.config.mcp.allow, self.config.sandboxes.port_range)
            sealer = await asyncio.to_thread(SecretSealer.open, self.config.data / VAULT_KEY_FILE)
            self.mcp = await open_mcp_services(
                self.config.mcp,
                self.store,
                self.events,
                self._mcp_dependencies(proxies, held),
                held,
                export=None if self.gateway.span_exporter is None else self.gateway.span_exporter.record_mcp_call,
                make_mask=lambda secrets: SecretMasker(secrets).mask_text,
                sealer=sealer,
                secrets=[each.get_secret_value() for each in self.config.runs.secrets.values()],
                may_use_secrets=lambda tenant: not {tenant, "*"}.isdisjoint(self.config.runs.secrets_for),
            )
            mcp_hook = McpSandboxHook(self.mcp.gateway, self.mcp_addresses, secret_lookup(self.config))
            held.push_async_callback(mcp_hook.close)
            sandbox_mcp_servers = SandboxMcpServers(memory.reservation)
            held.push_async_callback(sandbox_mcp_servers.close)
            devices = AndroidDevices(self.config.live)
            held.push_async_callback(devices.close)
            connection_store = ConnectionStore(self.store)
            recorder = await ConnectionRecorder.open(
                connection_store, self.events, keep=self.config.network.keep_connections
            )
            held.push_async_callback(recorder.close)
            vaults = await CredentialVaults.load(CredentialVaultStore(self.store), VaultSealer(sealer))
            self.networks = SandboxNetworks(
                self.config.network,
                recorder.record,
                recorder.flush,
                TargetAddresses(self.config.network.private_targets, self.config.sandboxes.port_range),
                DailyByteCounts(self.config.network, ByteCountStore(self.store)),
                proxies=proxies,
                vaults=vaults,
            )
            held.push_async_callback(self.networks.close)
            self.refuse_own_port(self.config.server.port)
            if settings.listen is not None:
                self.refuse_own_port(int(settings.listen.rpartition(":")[2]))
            connections = ConnectionHistory(connection_store, self.networks, recorder.flush)
            previews = await PortPreviews.open(PreviewStore(self.store), self.events)
            held.push_async_callback(previews.close)
            preview_links = await asyncio.to_thread(PreviewLinkSigner.open, self.config.data / PREVIEW_KEY_FILE)
            self.fleet = Fleet(
                backend=self.backend,
                images=self.images,
                store=self.store,
                events=self.events,
                config=self.config,
                hooks=[sandboxes, mcp_hook, sandbox_mcp_servers, devices, self.networks, previews],
                network=self.networks,
            )
            held.push_async_callback(self.fleet.close)
            self.live = await LiveServices.open(self.fleet, self.events, self.config)
            held.push_async_callback(self.live.close)
            sandbox_mcp_servers.connect(self.live.tools, self.live.display_watcher)
            reconciler = Reconciler(self.fleet)
            held.push_async_callback(reconciler.close)
            await reconciler.open()
            run_dependencies = RunServiceDependencies.create(
                self.config,
                fleet=self.fleet,
                images=self.images,
                gateway=self.gateway,
                events=self.events,
                connections=connections,
                mcp=self.mcp,
            )
            # The data directory is locked, so no other process works on unfinished runs.
            self.runs = RunService(run_dependencies, self.store, alone=True)
            held.push_async_callback(self.runs.close)
            await self.runs.open()
            engine_dependencies = EngineDependencies(
                config=self.config,
                store=self.store,
                events=self.events,
                fleet=self.fleet,
                live=self.live,
                keys=self.keys,
                images=self.images,
                mcp=ChatTools(self.mcp.gateway, self.config.mcp.list_timeout),
            )
            self.sessions = await open_session_service(engine_dependencies, self.model_server, self.gateway, held)
            mcp_edge = McpHttpEdge(self.mcp.gateway.resolve, allows_origin=lambda headers: True)
            held.push_async_callback(mcp_edge.close)
            builds = ImageBuildJobs(self.images)
            held.push_async_callback(builds.close)
            self.services = ApiServices(
                config=self.config,
                fleet=self.fleet,
                keys=self.keys,
                counts=ObjectCounts(self.store),
                series=UsageSeriesStore(self.store),
                mcp_edge=mcp_edge,
                mcp_services=self.mcp,
                ready=self.store.check,
                log=self.log,
                logins=BrowserLogins(self.keys, LoginStore(self.store)),
                images=self.images,
                builds=builds,
                events=self.events,
                gateway=self.gateway,
                runs=self.runs,
                live=self.live,
                sessions=self.sessions,
                networks=self.networks,
                connections=connections,
                vaults=vaults,
                previews=previews,
                preview_links=preview_links,
                loop=self.loop,
            )
            self._held = held.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._held.aclose()

    def _mcp_dependencies(self, proxies: OutgoingProxies, held: AsyncExitStack) -> UpstreamDependencies:
        """Return what connections to MCP servers need; the HTTP clients are closed with `held`."""
        self._public_addresses = McpAddressPolicy(published=self.config.sandboxes.port_range)
        client = McpHttpClient(self.mcp_addresses, proxies)
        internet_client = McpHttpClient(self._public_addresses, proxies)
        held.push_async_callback(client.close)
        held.push_async_callback(internet_client.close)
        return UpstreamDependencies(
            client=client,
            internet_client=internet_client,
            secrets=secret_lookup(self.config),
            # The fleet is created later: it calls hooks that need the gateway.
            programs=SandboxPrograms(lambda tenant, sandbox: self.fleet.running_client(tenant, sandbox)),
        )

    def refuse_own_port(self, port: int) -> None:
        """Keep sandboxes from reaching a port on which this server listens."""
        self.mcp_addresses.refuse_port(port)
        self._public_addresses.refuse_port(port)
        self.networks.addresses.refuse_port(port)

    @cached_property
    def app(self) -> ASGIApp:
        """The API, built on first use: running tasks without a port does not need it."""
        return create_api_app(self.services)

    @property
    def local_key_path(self) -> Path:
        """File with the key for the command line on this machine."""
        return self.config.data / LOCAL_KEY_FILE


def build_server(config: Config, log: LogBuffer | None = None) -> PaddockServer:
    """Create a server to open with `async with`. `log` holds the log lines that the server shows."""
    return PaddockServer(config, log)
