"""Wires everything together, and serves it."""

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
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Self, cast

import structlog
import uvicorn
import uvloop
from starlette.types import ASGIApp

from paddock.agents.engines.registry import Means as EngineMeans
from paddock.agents.opening import open_sessions
from paddock.agents.sessions import Sessions
from paddock.agents.spending import Spending
from paddock.api.application import make_app
from paddock.api.connections import Connection, WebSocketConnection
from paddock.api.front import Hosts
from paddock.api.quick import QuickDoor
from paddock.api.services import Services
from paddock.auth.exposure import check_exposure
from paddock.auth.keys import Keys
from paddock.auth.logins import Logins
from paddock.config.llm import LlmConfig
from paddock.config.schema import Config
from paddock.errors import ConfigError, PaddockError, Unavailable
from paddock.events.log import EventLog
from paddock.fleet.fleet import Fleet
from paddock.fleet.keeper import Keeper
from paddock.live.attendant import OwnTools
from paddock.live.devices import Devices
from paddock.live.live import Live
from paddock.llm.archive.archive import Archive
from paddock.llm.archive.source import ArchiveSource
from paddock.llm.boxes import Boxes
from paddock.llm.budgets import Budgets
from paddock.llm.callers import Callers
from paddock.llm.demo import with_demo
from paddock.llm.gateway import Gateway
from paddock.llm.limits import Limits as ModelLimits
from paddock.llm.offload.pool import WorkerPool
from paddock.llm.prices import Prices
from paddock.llm.providers.makers import Around, make_provider
from paddock.llm.routes import Routes
from paddock.llm.tracing import make_tracer
from paddock.llm.usage import Ledger
from paddock.llm.wire.base import Handler, HttpRequest, Reply
from paddock.llm.wire.client import Client
from paddock.llm.wire.server import Door
from paddock.mcp.bridge import Bridges
from paddock.mcp.reach import Reach
from paddock.model.sandbox import Limits, SandboxState
from paddock.runs.means import Means
from paddock.runs.runs import Runs
from paddock.sandbox.base import Backend
from paddock.sandbox.images import BuildJobs, ImageStore, default_recipe_directories
from paddock.sandbox.local.backend import LocalBackend, LocalSettings
from paddock.store.counts import Counts
from paddock.store.database import Store
from paddock.store.keys import KeyStore
from paddock.store.lock import DataLock
from paddock.store.logins import LoginStore
from paddock.store.series import SeriesStore
from paddock.telemetry.logging import configure_logging
from paddock.telemetry.logs import LogRing
from paddock.telemetry.loop import LoopMonitor

BACKENDS = "paddock.backends"
DATABASE = "paddock.db"
LOCAL_KEY = "local.key"
SERVER_FILE = "server.json"
MAX_WEBSOCKET_MESSAGE = 16 * 2**20
MAX_MODEL_CONNECTIONS = 20_000
KEEP_ALIVE = 75
"""Seconds; longer than clients keep idle connections, so that they do not send into one we are closing."""
log = structlog.get_logger()


class Paddock:
    """Everything one server has, open from `async with` until its end. Boxes go on after that."""

    config: Config
    store: Store
    events: EventLog
    keys: Keys
    images: ImageStore
    backend: Backend
    fleet: Fleet
    gateway: Gateway
    door: Door
    loop: LoopMonitor
    bridges: Bridges
    live: Live
    runs: Runs
    sessions: Sessions
    services: Services

    def __init__(self, config: Config, log: LogRing | None = None) -> None:
        self.log = log or LogRing()
        self.config = config.model_copy(update={"llm": with_demo(config.llm)})
        self._held = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as held:
            held.enter_context(DataLock.acquire(self.config.data))
            self.store = await held.enter_async_context(await Store.open(self.config.data / DATABASE))
            self.events = await EventLog.open(self.store)
            held.callback(self.events.close)
            self.keys = Keys(KeyStore(self.store))
            self.gateway = await open_gateway(
                self.config.llm, self.store, self.keys, held, default_model=self.config.chat.model
            )
            spending = Spending(self.store, self.events, self.config.chat.budget)
            held.push_async_callback(spending.close)
            self.gateway.accounts.append(spending)
            self.images = make_image_store(self.config)
            self.backend = await asyncio.to_thread(make_backend, self.config)
            held.push_async_callback(self.backend.close)
            settings = self.config.llm
            self.loop = LoopMonitor(cpu=self.config.log.level == "debug")
            self.loop.start()
            held.callback(self.loop.stop)
            self.door = Door(
                measured(self.gateway, self.loop),
                max_body=settings.max_body,
                max_connections=MAX_MODEL_CONNECTIONS,
                room=self.gateway.room,
            )
            held.push_async_callback(self.door.close, self.config.server.shutdown_grace)
            boxes = Boxes(settings, self.keys, self.door)
            held.push_async_callback(boxes.close)
            self.bridges = make_bridges(self.config)
            held.push_async_callback(self.bridges.close)
            own_tools = OwnTools()
            held.push_async_callback(own_tools.close)
            devices = Devices(self.config.live)
            held.push_async_callback(devices.close)
            self.fleet = Fleet(
                backend=self.backend,
                images=self.images,
                store=self.store,
                events=self.events,
                config=self.config,
                attendants=[boxes, self.bridges, own_tools, devices],
            )
            held.push_async_callback(self.fleet.close)
            self.live = await Live.open(self.fleet, self.events, self.config)
            held.push_async_callback(self.live.close)
            own_tools.open(self.live.hands, self.live.displays)
            keeper = Keeper(self.fleet)
            held.push_async_callback(keeper.close)
            await keeper.open()
            means = Means.make(
                self.config, fleet=self.fleet, images=self.images, gateway=self.gateway, events=self.events
            )
            # Nobody else has the data directory, so nobody else can be at work on what was left.
            self.runs = Runs(means, self.store, alone=True)
            held.push_async_callback(self.runs.close)
            await self.runs.open()
            chatting = EngineMeans(
                config=self.config,
                store=self.store,
                events=self.events,
                fleet=self.fleet,
                live=self.live,
                keys=self.keys,
                images=self.images,
            )
            self.sessions = await open_sessions(chatting, self.door, self.gateway, held)
            builds = BuildJobs(self.images)
            held.push_async_callback(builds.close)
            self.services = Services(
                config=self.config,
                fleet=self.fleet,
                keys=self.keys,
                counts=Counts(self.store),
                series=SeriesStore(self.store),
                ready=self.store.check,
                log=self.log,
                logins=Logins(self.keys, LoginStore(self.store)),
                images=self.images,
                builds=builds,
                events=self.events,
                gateway=self.gateway,
                runs=self.runs,
                live=self.live,
                sessions=self.sessions,
                loop=self.loop,
            )
            self._held = held.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._held.aclose()

    @cached_property
    def app(self) -> ASGIApp:
        """The API. It is made when it is first asked for: who runs tasks without a port has no use for it."""
        return make_app(self.services)

    @property
    def local_key_path(self) -> Path:
        """Where the key for the command line on this machine is kept."""
        return self.config.data / LOCAL_KEY


def build(config: Config, log: LogRing | None = None) -> Paddock:
    """A server that is not open yet: `async with build(config) as paddock:`. `log` is what it shows of its log."""
    return Paddock(config, log)


async def open_gateway(
    settings: LlmConfig, store: Store, keys: Keys, held: AsyncExitStack, *, default_model: str | None = None
) -> Gateway:
    """The LLM proxy; what it holds is let go of with `held`."""
    client = Client()
    held.push_async_callback(client.close)
    ledger = await Ledger.open(store)
    held.push_async_callback(ledger.close)
    archive = await Archive.open(store, settings.archive, provider_secrets(settings), apart=True)
    held.push_async_callback(archive.close)
    tracer = make_tracer(settings.tracing, settings.providers)
    if tracer is not None:
        held.push_async_callback(asyncio.to_thread, tracer.close)
    workers = WorkerPool()
    held.push_async_callback(workers.close)
    around = Around(client, ArchiveSource(archive))
    providers = {name: make_provider(name, each, around) for name, each in settings.providers.items()}
    for provider in providers.values():
        held.push_async_callback(provider.close)
    gateway = Gateway(
        settings=settings,
        routes=Routes(settings, providers),
        callers=Callers(keys),
        limits=ModelLimits(settings.tenant_limits),
        budgets=Budgets(ledger),
        ledger=ledger,
        prices=Prices.load(settings.prices),
        archive=archive,
        tracer=tracer,
        default_model=default_model,
        workers=workers,
    )
    held.push_async_callback(gateway.catalog.close)
    return gateway


def measured(handler: Handler, loop: LoopMonitor) -> Handler:
    """The handler, with each of its steps measured."""

    async def handle(request: HttpRequest, reply: Reply) -> None:
        await loop.timed(cast(Coroutine[Any, Any, None], handler(request, reply)), f"{request.method} {request.path}")

    return handle


def make_bridges(config: Config) -> Bridges:
    """The way of sandboxes to MCP servers, which never leads to this server itself."""

    def secret(name: str) -> str | None:
        found = config.runs.secrets.get(name)
        return None if found is None else found.get_secret_value()

    bridges = Bridges(secret, Reach(config.mcp.allow, config.sandboxes.port_range))
    bridges.reach.refuse_port(config.server.port)
    if config.llm.listen is not None:
        bridges.reach.refuse_port(int(config.llm.listen.rpartition(":")[2]))
    return bridges


def provider_secrets(settings: LlmConfig) -> list[str]:
    """What must never be kept or told."""
    headers = [each.headers for each in settings.providers.values()] + [
        each.headers for each in settings.models.values()
    ]
    secrets = [value for some in headers for value in some.values()]
    secrets += [provider.key for provider in settings.providers.values() if provider.key is not None]
    return [text for secret in secrets if (text := secret.get_secret_value())]


def make_image_store(config: Config) -> ImageStore:
    settings = config.images
    recipes = default_recipe_directories(settings.recipes)
    return ImageStore(config.data / "images", recipes, settings.mirror, settings.aliases)


def make_backend(config: Config) -> Backend:
    """The configured backend. Raises `ConfigError` naming the known ones if there is none of that name."""
    found = {entry.name: entry for entry in entry_points(group=BACKENDS)}
    name = config.sandboxes.default_backend
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        raise ConfigError(f"sandboxes.default_backend: there is no backend {name!r}; known are: {known}")
    kind = _load(found[name])
    if issubclass(kind, LocalBackend):
        return kind(local_settings(config))
    backend: Backend = kind(config)
    return backend


def local_settings(config: Config) -> LocalSettings:
    local = config.local
    config.shared.mkdir(parents=True, exist_ok=True)
    return LocalSettings(
        data=config.data,
        shared=config.shared,
        uid_base=local.uid_base,
        uid_count=local.uid_count,
        cgroup_parent=str(local.cgroup_parent) if local.cgroup_parent else None,
        start_timeout=config.sandboxes.start_timeout,
        defaults=Limits(**config.sandboxes.limits.model_dump()),
        filter_system_calls=not local.unsafe_disable_seccomp,
    )


def serve(
    config: Config,
    on_ready: Callable[[str], None] = lambda url: None,
    on_start: Callable[[Callable[[], tuple[bool, int]]], None] = lambda use: None,
) -> None:
    """Serve until told to stop by SIGTERM or SIGINT. `on_ready` is given the address once it answers.

    `on_start` is given a function for any thread: whether requests or runs are under way, and the count of requests.
    """
    lines = LogRing()
    configure_logging(config.log, lines)
    os.umask(os.umask(0o022) | 0o022)  # Nobody else writes what we make, whatever we were started with.
    raise_open_files()
    uvloop.run(_serve(config, on_ready, on_start, lines))


async def _serve(
    config: Config,
    on_ready: Callable[[str], None],
    on_start: Callable[[Callable[[], tuple[bool, int]]], None],
    lines: LogRing,
) -> None:
    async with build(config, lines) as paddock:
        check_exposure(config.server.host, await paddock.keys.exist())
        await paddock.keys.ensure_local_key(paddock.local_key_path)
        listener = listen(config.server.host, config.server.port)
        url = address_of(listener, config.server.host)
        paddock.bridges.reach.refuse_port(listener.getsockname()[1])
        if config.llm.listen is not None:
            host, _, port = config.llm.listen.rpartition(":")
            check_exposure(host, await paddock.keys.exist())
            models = listen(host, int(port))
            await paddock.door.listen(models)
            log.info("serving models", url=address_of(models, host))
        record = config.data / SERVER_FILE

        def ready() -> None:
            write_server_file(record, url)
            settle_memory()
            log.info("serving", url=url, data=str(config.data))
            on_ready(url)

        server = _Server(paddock, ready)

        def use() -> tuple[bool, int]:
            state = server.server_state
            return bool(state.tasks) or paddock.runs.busy, state.total_requests

        on_start(use)
        try:
            await server.serve([listener])
        finally:
            listener.close()
            record.unlink(missing_ok=True)
        await tell_of_running(paddock.fleet)


async def tell_of_running(fleet: Fleet) -> None:
    """Say which sandboxes do not end with the server, or who stops it would take them for gone."""
    with contextlib.suppress(PaddockError):
        _, running = await fleet.sandboxes.list(states=[SandboxState.RUNNING], page_size=1)
        if running:
            some = "1 sandbox goes" if running == 1 else f"{running} sandboxes go"
            log.info(f"{some} on running; `paddock serve` finds {'it' if running == 1 else 'them'} again")


class _Server(uvicorn.Server):
    """uvicorn, except that signals end it without ending the process, and open streams do not hold it up."""

    def __init__(self, paddock: Paddock, ready: Callable[[], None]) -> None:
        quick = QuickDoor(measured(paddock.gateway, paddock.loop), Hosts(paddock.config.server))
        settings = uvicorn.Config(
            paddock.app,
            http=Connection.lending(paddock.door.adopt(quick)),
            ws=WebSocketConnection,
            ws_max_size=MAX_WEBSOCKET_MESSAGE,
            ws_per_message_deflate=False,
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=max(1, round(paddock.config.server.shutdown_grace)),
        )
        super().__init__(settings)
        self._paddock = paddock
        self._ready = ready

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn's own raises the signal again when it is done, and the process would end before we have cleaned up.
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
        self._paddock.events.close()  # Ends the streams of those who follow.
        self._paddock.gateway.archive.stop_following()
        self._paddock.live.stop()
        self._paddock.log.close()
        await super().shutdown(sockets)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises `Unavailable` if the address is taken, `ConfigError` if it is none of this machine."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]") or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"server.host: {host!r} is no address of this machine: {error.strerror}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise Unavailable(
            f"{host}:{port} cannot be listened on: {error.strerror}; stop what uses it or set another server.port"
        ) from None
    return listener


def address_of(listener: socket.socket, host: str) -> str:
    """Where the server is reached from this machine."""
    bound, port = listener.getsockname()[:2]
    if bound in ("0.0.0.0", "::"):  # noqa: S104
        bound = "127.0.0.1"
    elif host == "localhost":
        bound = host
    return f"http://[{bound}]:{port}" if ":" in bound else f"http://{bound}:{port}"


def write_server_file(path: Path, url: str) -> None:
    """Tell the command line where the server is. Whole or not at all, and for the owner's eyes only."""
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
        json.dump({"pid": os.getpid(), "url": url}, file)
    partial.replace(path)


def settle_memory() -> None:
    """What is there once the server serves stays; looking through it again and again for garbage takes a tenth of the
    time of small requests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def raise_open_files() -> None:
    """Each box and each connection takes a descriptor or two."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _load(entry: EntryPoint) -> type[Any]:
    try:
        kind: type[Any] = entry.load()
    except ImportError as error:
        raise ConfigError(f"the backend {entry.name!r} cannot be loaded: {error}") from error
    return kind
