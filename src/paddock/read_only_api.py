"""Answers read requests from a data directory, in this process and without a server.

The routes are the server's, over services that are created but never opened: nothing is started, locked or written, so
it is safe beside a server that starts at the same moment.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from paddock.errors import NotFound

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from paddock.agents.sessions.session_service import SessionService
    from paddock.api.services import ApiServices
    from paddock.config.schema import Config
    from paddock.events.event_log import EventLog
    from paddock.fleet.fleet import Fleet
    from paddock.llm.archive.archive import ExchangeArchive
    from paddock.llm.metering.usage_ledger import UsageLedger
    from paddock.model.keys import Principal
    from paddock.network.connection_history import ConnectionHistory
    from paddock.network.sandbox_network_control import SandboxNetworkControl
    from paddock.runs.run_service import RunService
    from paddock.sandbox.images import ImageStore
    from paddock.store.database import Store

READ_ONLY_ROUTE_MODULES = {
    "events": "admin.event_routes",
    "exchanges": "llm.exchanges",
    "keys": "admin.key_routes",
    "kinds": "sandboxes.kind_routes",
    "pools": "sandboxes.pool_routes",
    "recordings": "live.recordings",
    "runs": "runs.run_routes",
    "sandboxes": "sandboxes.sandbox_routes",
    "sandboxes/connections": "sandboxes.network_routes",
    "sandboxes/conversations": "llm.exchanges",
    "sandboxes/events": "admin.event_routes",
    "sandboxes/network": "sandboxes.network_routes",
    "sandboxes/recordings": "live.recordings",
    "sessions": "sessions.session_routes",
    "sessions/approvals": "sessions.approval_routes",
    "sessions/files": "sessions.session_file_routes",
    "snapshots": "sandboxes.snapshot_routes",
    "usage": "llm.usage",
}
"""Modules of `paddock.api` with the routes, by the first and the third part of a path."""


@dataclass(frozen=True)
class ReadOnlyApiResponse:
    """HTTP response of the read-only API."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class ReadOnlyApi:
    """The read-only API of one data directory, with the rights of its local key."""

    def __init__(self, config: Config, store: Store, events: EventLog) -> None:
        self._parts = _ReadOnlyServices(config, store, events)
        self._apps: dict[str, ASGIApp] = {}

    @classmethod
    async def open(cls, config: Config, store: Store) -> ReadOnlyApi:
        from paddock.events.event_log import EventLog

        return cls(config, store, await EventLog.open(store))

    async def get(self, path: str, query: str = "", headers: Mapping[str, str] | None = None) -> ReadOnlyApiResponse:
        """Answer a GET request. Raises `NotFound` for paths that need a server."""
        from paddock.api.http.authorization import PRINCIPAL_SCOPE_KEY

        await self._parts.prepare(path)
        scope: dict[str, Any] = {
            "type": "http",
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()],
            "http_version": "1.1",
            "scheme": "http",
            "server": ("127.0.0.1", 0),
            "client": None,
            PRINCIPAL_SCOPE_KEY: await self._parts.principal(),
        }
        status = 500
        response_headers: dict[str, str] = {}
        body = bytearray()

        async def send(message: Any) -> None:
            nonlocal status, response_headers
            if message["type"] == "http.response.start":
                status = message["status"]
                response_headers = {
                    name.decode("latin-1"): value.decode("latin-1") for name, value in message["headers"]
                }
            body.extend(message.get("body", b""))

        requests = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> dict[str, Any]:
            if not requests:
                await asyncio.Event().wait()  # The caller never disconnects; waiting is cancelled with the response.
            return requests.pop()

        await self._app(path)(scope, receive, send)
        return ReadOnlyApiResponse(status, response_headers, bytes(body))

    def _app(self, path: str) -> ASGIApp:
        _, version, *parts = path.split("/")
        name = READ_ONLY_ROUTE_MODULES.get("/".join(parts[0:3:2])) or READ_ONLY_ROUTE_MODULES.get(parts[0])
        if version != "v1" or name is None:
            raise NotFound(f"{path} needs a running server")
        if name not in self._apps:
            from fastapi import FastAPI

            from paddock.api.http.error_responses import install_error_handlers

            app = FastAPI(openapi_url=None, redirect_slashes=False)
            routes = (
                importlib.import_module(f"paddock.api.{name}").create_router(cast("ApiServices", self._parts)).routes
            )
            app.router.routes.extend(routes)
            install_error_handlers(app)
            self._apps[name] = app
        return self._apps[name]


class _ReadOnlyServices:
    """The `ApiServices` that read routes use, each created on first use."""

    def __init__(self, config: Config, store: Store, events: EventLog) -> None:
        self.config = config
        self.events = events
        self._store = store

    async def principal(self) -> Principal:
        """Return the holder of the local key, or an administrator where that key does not work."""
        from paddock.auth.api_keys import LOCAL_KEY_NAME
        from paddock.auth.key_secrets import read_key_secret_file
        from paddock.errors import PaddockError
        from paddock.model.keys import DEFAULT_TENANT, Principal, Scope

        try:
            principal: Principal = await self.keys.authenticate(
                read_key_secret_file(self.config.data / "local.key") or ""
            )
        except (PaddockError, OSError):
            return Principal(
                tenant=DEFAULT_TENANT, key_id=LOCAL_KEY_NAME, name=LOCAL_KEY_NAME, scopes=frozenset([Scope.ADMIN])
            )
        return principal

    async def prepare(self, path: str) -> None:
        """Load state that a server keeps in memory."""
        if path.startswith("/v1/pools"):
            await self.fleet.pools.load_pools()

    @cached_property
    def images(self) -> ImageStore:
        from paddock.sandbox.images import ImageStore, default_recipe_directories

        settings = self.config.images
        recipes = default_recipe_directories(settings.recipes)
        return ImageStore(self.config.data / "images", recipes, settings.mirror, settings.aliases)

    @cached_property
    def fleet(self) -> Fleet:
        from paddock.fleet.fleet import Fleet

        backend: Any = SimpleNamespace(name=self.config.sandboxes.default_backend, features=frozenset())
        return Fleet(backend=backend, images=self.images, store=self._store, events=self.events, config=self.config)

    @cached_property
    def networks(self) -> SandboxNetworkControl:
        from paddock.network.sandbox_network_control import UnconnectedSandboxNetworks

        return UnconnectedSandboxNetworks()

    @cached_property
    def connections(self) -> ConnectionHistory:
        from paddock.network.connection_history import ConnectionHistory
        from paddock.store.connection_store import ConnectionStore

        return ConnectionHistory(ConnectionStore(self._store), self.networks)

    @cached_property
    def keys(self) -> Any:
        from paddock.auth.api_keys import ApiKeys
        from paddock.store.key_store import ApiKeyStore

        return ApiKeys(ApiKeyStore(self._store))

    @cached_property
    def gateway(self) -> Any:
        return SimpleNamespace(workers=None)  # Requests answered here have no bodies to parse.

    @cached_property
    def archive(self) -> ExchangeArchive:
        from paddock.llm.archive.archive import ExchangeArchive

        return ExchangeArchive.open_read_only(self._store, self.config.llm.archive)

    @cached_property
    def ledger(self) -> UsageLedger:
        from paddock.llm.metering.usage_ledger import UsageLedger
        from paddock.store.model_exchanges.usage_store import UsageStore

        return UsageLedger(UsageStore(self._store))

    @cached_property
    def budgets(self) -> Any:
        from paddock.llm.metering.budgets import KeyBudgets

        return KeyBudgets(self.ledger)

    @cached_property
    def live(self) -> Any:
        from paddock.live.recording.manager import RecordingManager

        return SimpleNamespace(
            recordings=RecordingManager(self.fleet, self.config.data / "recordings", self.config.live)
        )

    @cached_property
    def runs(self) -> RunService:
        from paddock.runs.execution.run_service_dependencies import RunServiceDependencies
        from paddock.runs.inputs.input_bundle_store import InputBundleStore
        from paddock.runs.presets import PresetLibrary
        from paddock.runs.results.deliverable_uploader import DeliverableUploader
        from paddock.runs.run_service import RunService

        dependencies = RunServiceDependencies(
            config=self.config,
            fleet=self.fleet,
            images=self.images,
            gateway=cast(Any, None),
            events=self.events,
            connections=self.connections,
            presets=PresetLibrary(self.config.runs.presets, owner="the server"),
            bundles=InputBundleStore(self.config.data / "bundles"),
            deliverable_uploader=DeliverableUploader(None),
            folders=self.config.data / "runs",
        )
        return RunService(dependencies, self._store)

    @cached_property
    def sessions(self) -> SessionService:
        from paddock.agents.approvals.tool_call_service import ToolCallService
        from paddock.agents.session_files import SessionFiles
        from paddock.agents.sessions.session_service import SessionService

        unused: Any = None
        calls = ToolCallService(self._store, self.events, self.config, unused)
        files = SessionFiles(self.config.data / "sessions", self.config.chat.file_size)
        return SessionService(
            self.config, self._store, self.events, unused, calls, unused, unused, files, unused, self.archive, unused
        )
