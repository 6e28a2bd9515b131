"""Builds a complete server from its configuration, and serves it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import resource
import secrets
import signal
import socket
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import AsyncExitStack
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Self, cast

import structlog
import uvicorn
import uvloop
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from paddock.agents.engines.registry import EngineDependencies
from paddock.agents.model.sandbox_spending import SandboxSpending
from paddock.agents.session_service_factory import open_session_service
from paddock.agents.sessions.session_service import SessionService
from paddock.api.application import create_api_app
from paddock.api.http.allowed_hosts import AllowedHosts
from paddock.api.http.model_fast_path import ModelFastPathHandler
from paddock.api.http.uvicorn_protocols import LimitedHttpProtocol, LimitedWebSocketProtocol, list_idle_connections
from paddock.api.services import ApiServices
from paddock.auth.api_keys import ApiKeys
from paddock.auth.logins import BrowserLogins
from paddock.auth.network_exposure import check_network_exposure
from paddock.auth.preview_links import PreviewLinkSigner
from paddock.config.llm import LlmConfig
from paddock.config.outgoing_proxy import OutgoingProxies, check_ca_bundle
from paddock.config.schema import Config
from paddock.errors import ConfigError, PaddockError, Unavailable
from paddock.events.event_log import EventLog
from paddock.fleet.fleet import Fleet
from paddock.fleet.previews import SandboxPreviews
from paddock.fleet.reconciler import Reconciler
from paddock.live.android_devices import AndroidDevices
from paddock.live.services import LiveServices
from paddock.live.tools.sandbox_mcp_server import SandboxMcpServers
from paddock.llm.archive.archive import ExchangeArchive
from paddock.llm.archive.replay_source import ArchiveRecordingSource
from paddock.llm.demo import add_demo_model
from paddock.llm.gateway.gateway import ModelGateway
from paddock.llm.gateway.model_routes import ModelRoutes
from paddock.llm.gateway.sandbox_access import SandboxModelAccess
from paddock.llm.metering.budgets import KeyBudgets
from paddock.llm.metering.key_authentication import KeyAuthenticator
from paddock.llm.metering.prices import PriceList
from paddock.llm.metering.rate_limits import RateLimits as ModelLimits
from paddock.llm.metering.span_export import make_span_exporter
from paddock.llm.metering.usage_ledger import UsageLedger
from paddock.llm.offload.worker_pool import OffloadWorkerPool
from paddock.llm.providers.factory import ProviderDependencies, make_provider
from paddock.llm.wire.base import Handler, HttpRequest, ResponseWriter
from paddock.llm.wire.descriptor_guard import FileDescriptorGuard
from paddock.llm.wire.http_client import HttpClient
from paddock.llm.wire.http_server import HttpServer
from paddock.mcp.address_policy import McpAddressPolicy
from paddock.mcp.declared_servers import SecretLookup
from paddock.mcp.gateway.chat_tools import ChatTools
from paddock.mcp.gateway.factory import McpServices, open_mcp_services
from paddock.mcp.http_client import McpHttpClient
from paddock.mcp.serving.http_edge import McpHttpEdge
from paddock.mcp.serving.rpc_listener import serve_grpc
from paddock.mcp.serving.sandbox_hook import McpSandboxHook
from paddock.mcp.upstreams.base import UpstreamDependencies
from paddock.mcp.upstreams.programs.sandbox_programs import SandboxPrograms
from paddock.model.sandbox import SandboxLimits, SandboxState
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
from paddock.sandbox.images import ImageBuildJobs, ImageStore, default_recipe_directories
from paddock.sandbox.local.backend import LocalBackend, LocalBackendSettings
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
from paddock.telemetry.logging_setup import configure_logging

BACKEND_ENTRY_POINTS = "paddock.backends"
DATABASE_FILE = "paddock.db"
LOCAL_KEY_FILE = "local.key"
PREVIEW_KEY_FILE = "preview.key"
VAULT_KEY_FILE = "vault.key"
SERVER_FILE = "server.json"
MAX_WEBSOCKET_MESSAGE = 16 * 2**20
MAX_MODEL_CONNECTIONS = 20_000
IDLE_CHECK_SECONDS = 10.0
IDLE_COLLECTIONS = 20
"""Collections of young objects after which all garbage is collected, once the server is idle."""
KEEP_ALIVE_SECONDS = 75
"""Seconds; longer than clients keep idle connections, so that they do not send into a connection being closed."""
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
            self.mcp = await open_mcp_services(
                self.config.mcp,
                self.store,
                self.events,
                self._mcp_dependencies(proxies, held),
                held,
                make_mask=lambda secrets: SecretMasker(secrets).mask_text,
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
            sealer = await asyncio.to_thread(VaultSealer.open, self.config.data / VAULT_KEY_FILE)
            vaults = await CredentialVaults.load(CredentialVaultStore(self.store), sealer)
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
            previews = await SandboxPreviews.open(PreviewStore(self.store), self.events)
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


async def open_model_gateway(
    settings: LlmConfig,
    store: Store,
    keys: ApiKeys,
    held: AsyncExitStack,
    *,
    default_model: str | None = None,
    secrets: Iterable[str] = (),
    proxies: OutgoingProxies | None = None,
) -> ModelGateway:
    """Open the LLM gateway; its resources are closed with `held`. `secrets` are redacted in the archive."""
    proxies = proxies or OutgoingProxies()
    client = HttpClient(ca_bundle=proxies.ca_bundle)
    held.push_async_callback(client.close)
    ledger = await UsageLedger.open(store)
    held.push_async_callback(ledger.close)
    workers = OffloadWorkerPool()
    held.push_async_callback(workers.close)
    archive = await ExchangeArchive.open(
        store,
        settings.archive,
        [*collect_provider_secrets(settings), *secrets],
        separate_process=True,
        workers=workers,
    )
    held.push_async_callback(archive.close)
    tracer = make_span_exporter(settings.tracing, settings.providers, proxies=proxies)
    if tracer is not None:
        held.push_async_callback(asyncio.to_thread, tracer.close)
    script_workers = OffloadWorkerPool(1)
    held.push_async_callback(script_workers.close)
    provider_dependencies = ProviderDependencies(client, ArchiveRecordingSource(archive), script_workers, proxies)
    providers = {name: make_provider(name, each, provider_dependencies) for name, each in settings.providers.items()}
    for provider in providers.values():
        held.push_async_callback(provider.close)
    gateway = ModelGateway(
        settings=settings,
        routes=ModelRoutes(settings, providers, script_workers),
        authenticator=KeyAuthenticator(keys),
        limits=ModelLimits(settings.tenant_limits),
        budgets=KeyBudgets(ledger),
        ledger=ledger,
        prices=PriceList.load(settings.prices),
        archive=archive,
        span_exporter=tracer,
        default_model=default_model,
        workers=workers,
    )
    held.push_async_callback(gateway.catalog.close)
    return gateway


def measure_event_loop_time(handler: Handler, loop: EventLoopMonitor) -> Handler:
    """Wrap a handler so that each of its steps is measured."""

    async def handle(request: HttpRequest, reply: ResponseWriter) -> None:
        await loop.measure(cast(Coroutine[Any, Any, None], handler(request, reply)), f"{request.method} {request.path}")

    return handle


def secret_lookup(config: Config) -> SecretLookup:
    """Return a function that finds a secret by name."""

    def find(name: str) -> str | None:
        found = config.runs.secrets.get(name)
        return None if found is None else found.get_secret_value()

    return find


def collect_provider_secrets(settings: LlmConfig) -> list[str]:
    """Return secrets that must never be stored or shown."""
    headers = [each.headers for each in settings.providers.values()] + [
        each.headers for each in settings.models.values()
    ]
    secrets = [value for some in headers for value in some.values()]
    secrets += [provider.key for provider in settings.providers.values() if provider.key is not None]
    return [text for secret in secrets if (text := secret.get_secret_value())]


def create_image_store(config: Config) -> ImageStore:
    settings = config.images
    recipes = default_recipe_directories(settings.recipes)
    return ImageStore(config.data / "images", recipes, settings.mirror, settings.aliases)


def create_sandbox_backend(config: Config) -> SandboxBackend:
    """Create the configured backend. Raises `ConfigError` naming the known ones if it is unknown."""
    found = {entry.name: entry for entry in entry_points(group=BACKEND_ENTRY_POINTS)}
    name = config.sandboxes.default_backend
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        raise ConfigError(f"sandboxes.default_backend: there is no backend {name!r}; known are: {known}")
    kind = _load_backend(found[name])
    if issubclass(kind, LocalBackend):
        return kind(local_backend_settings(config))
    backend: SandboxBackend = kind(config)
    return backend


def local_backend_settings(config: Config) -> LocalBackendSettings:
    local = config.local
    config.shared.mkdir(parents=True, exist_ok=True)
    return LocalBackendSettings(
        data=config.data,
        shared=config.shared,
        uid_base=local.uid_base,
        uid_count=local.uid_count,
        uid_ranges=local.uid_ranges,
        cgroup_parent=str(local.cgroup_parent) if local.cgroup_parent else None,
        start_timeout=config.sandboxes.start_timeout,
        defaults=SandboxLimits(**config.sandboxes.limits.model_dump()),
        filter_system_calls=not local.unsafe_disable_seccomp,
    )


def serve(
    config: Config,
    on_ready: Callable[[str], None] = lambda url: None,
    on_start: Callable[[Callable[[], tuple[bool, int]]], None] = lambda report_activity: None,
) -> None:
    """Serve until SIGTERM or SIGINT. `on_ready` receives the address once the server answers.

    `on_start` receives a function for any thread, which returns whether requests or runs are active, and the number of
    requests.
    """
    lines = LogBuffer()
    handler = configure_logging(config.log, lines, with_banner=True)

    def ready(url: str) -> None:
        on_ready(url)
        handler.end_hold()

    os.umask(os.umask(0o022) | 0o022)  # Never create files that others can write, regardless of the inherited umask.
    raise_open_file_limit()
    try:
        uvloop.run(_serve(config, ready, on_start, lines))
    finally:
        handler.end_hold()


async def _serve(
    config: Config,
    on_ready: Callable[[str], None],
    on_start: Callable[[Callable[[], tuple[bool, int]]], None],
    lines: LogBuffer,
) -> None:
    check_port_is_free(config)
    async with build_server(config, lines) as paddock, AsyncExitStack() as serving:
        addresses = [config.llm.listen, config.mcp.grpc.listen]
        for host in (config.server.host, *(each.rpartition(":")[0] for each in addresses if each is not None)):
            check_network_exposure(host, await paddock.keys.any_usable())
        await paddock.keys.ensure_local_key(paddock.local_key_path)
        listener = open_listener(config.server.host, config.server.port)
        url = listener_url(listener, config.server.host)
        paddock.refuse_own_port(listener.getsockname()[1])
        if config.llm.listen is not None:
            host, _, port = config.llm.listen.rpartition(":")
            models = open_listener(host, int(port), "llm.listen")
            await paddock.model_server.listen(models)
            log.info("serving models", url=listener_url(models, host))
        grpc = await serving.enter_async_context(
            serve_grpc(
                config.mcp.grpc,
                paddock.mcp.gateway.resolve,
                paddock.keys,
                paddock.services.logins,
                config.server.shutdown_grace,
            )
        )
        if grpc is not None:
            paddock.refuse_own_port(grpc)
            log.info("serving MCP over gRPC", address=config.mcp.grpc.listen)
        record = config.data / SERVER_FILE

        def ready() -> None:
            write_server_file(record, url)
            freeze_startup_objects()
            log.info("serving", url=url, data=str(config.data))
            on_ready(url)

        server = _UvicornServer(paddock, ready)

        def report_activity() -> tuple[bool, int]:
            state = server.server_state
            return bool(state.tasks) or paddock.runs.has_active_runs, state.total_requests

        on_start(report_activity)
        collecting = asyncio.create_task(collect_garbage_when_idle(lambda: report_activity()[0]))
        try:
            await server.serve([listener])
        finally:
            collecting.cancel()
            listener.close()
            record.unlink(missing_ok=True)
        await log_running_sandboxes(paddock.fleet)


async def log_running_sandboxes(fleet: Fleet) -> None:
    """Log that running sandboxes keep running after the server has stopped."""
    with contextlib.suppress(PaddockError):
        _, running = await fleet.sandboxes.list(states=[SandboxState.RUNNING], page_size=1)
        if running:
            some = "1 sandbox goes" if running == 1 else f"{running} sandboxes go"
            log.info(f"{some} on running; `paddock serve` finds {'it' if running == 1 else 'them'} again")


class _UvicornServer(uvicorn.Server):
    """uvicorn, except that signals do not end the process, and open streams do not delay shutdown."""

    def __init__(self, paddock: PaddockServer, ready: Callable[[], None]) -> None:
        quick = ModelFastPathHandler(
            measure_event_loop_time(paddock.gateway, paddock.loop),
            AllowedHosts(paddock.config.server),
            paddock.services.traffic,
        )
        settings = uvicorn.Config(
            paddock.app,
            http=LimitedHttpProtocol.with_model_server(
                paddock.model_server.add_external_listener(quick), paddock.descriptors
            ),
            ws=LimitedWebSocketProtocol.measured_by(paddock.loop.call),
            ws_max_size=MAX_WEBSOCKET_MESSAGE,
            ws_per_message_deflate=False,
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=max(1, round(paddock.config.server.shutdown_grace)),
        )
        super().__init__(settings)
        paddock.descriptors.add_source(lambda: list_idle_connections(self.server_state.connections))
        self._paddock = paddock
        self._ready = ready

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn's version raises the signal again, which would end the process before cleanup.
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        log.info("stopping", grace=self._paddock.config.server.shutdown_grace)
        self._paddock.events.close()  # Ends open event streams.
        self._paddock.gateway.archive.stop_following()
        self._paddock.live.stop()
        self._paddock.services.mcp_edge.end_subscriptions()
        self._paddock.log.close()
        await super().shutdown(sockets)


def check_port_is_free(config: Config) -> None:
    """Raise `Unavailable` if the port is taken, before any thread or process of the server is started.

    If the data directory is in use as well, raises `AlreadyRunning`, which explains more.
    """
    with DataDirectoryLock.acquire(config.data):
        open_listener(config.server.host, config.server.port).close()


def open_listener(host: str, port: int, setting: str = "server.port") -> socket.socket:
    """Open a listening socket. `setting` is named in errors.

    Raises `Unavailable` if the address is taken, `ConfigError` if it is not an address of this machine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]") or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"server.host: {host!r} is not an address of this machine: {error.strerror}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        flag = ", for example with --port 9000" if setting == "server.port" else ""
        raise Unavailable(
            f"cannot listen on {host}:{port}: {error.strerror}; stop the other program or set another {setting}{flag}"
        ) from None
    return listener


def listener_url(listener: socket.socket, host: str) -> str:
    """Return the URL of the server on this machine."""
    bound, port = listener.getsockname()[:2]
    if bound in ("0.0.0.0", "::"):  # noqa: S104
        bound = "127.0.0.1"
    elif host == "localhost":
        bound = host
    return f"http://[{bound}]:{port}" if ":" in bound else f"http://{bound}:{port}"


def write_server_file(path: Path, url: str) -> None:
    """Write the server's URL for the command line, atomically and readable by the owner only."""
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
        json.dump({"pid": os.getpid(), "url": url}, file)
    partial.replace(path)


def freeze_startup_objects() -> None:
    """Exclude the objects of startup from garbage collection, which would take a tenth of the time of
    small requests."""
    gc.collect()
    gc.freeze()
    # A full collection can take longer than any step may hold the event loop; see `collect_garbage_when_idle`.
    gc.set_threshold(10_000, 20, 1000)


async def collect_garbage_when_idle(is_active: Callable[[], bool]) -> None:
    """Collect all garbage from time to time while no request is answered."""
    while True:
        await asyncio.sleep(IDLE_CHECK_SECONDS)
        if gc.get_count()[2] >= IDLE_COLLECTIONS and not is_active():
            gc.collect()


def raise_open_file_limit() -> None:
    """Raise the limit on open files: each sandbox and each connection needs one or two."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _load_backend(entry: EntryPoint) -> type[Any]:
    try:
        kind: type[Any] = entry.load()
    except ImportError as error:
        raise ConfigError(f"the backend {entry.name!r} cannot be loaded: {error}") from error
    return kind
