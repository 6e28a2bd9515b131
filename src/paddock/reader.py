"""Answers requests that only read from a data directory, in this process and without a server.

Routes are those of the server, over parts that are made and never opened: nothing is started, locked or written, so it
is safe beside a server that starts at the same moment.
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

    from paddock.agents.sessions import Sessions
    from paddock.api.services import Services
    from paddock.config.schema import Config
    from paddock.events.log import EventLog
    from paddock.fleet.fleet import Fleet
    from paddock.llm.archive.archive import Archive
    from paddock.llm.usage import Ledger
    from paddock.model.keys import Principal
    from paddock.runs.runs import Runs
    from paddock.sandbox.images import ImageStore
    from paddock.store.database import Store

MODULES = {
    "events": "events",
    "exchanges": "exchanges",
    "keys": "keys",
    "kinds": "kinds",
    "pools": "pools",
    "recordings": "recordings",
    "runs": "runs",
    "sandboxes": "sandboxes",
    "sandboxes/conversations": "exchanges",
    "sandboxes/events": "events",
    "sandboxes/recordings": "recordings",
    "sessions": "sessions",
    "sessions/approvals": "approvals",
    "sessions/files": "session_files",
    "snapshots": "snapshots",
    "usage": "usage",
}
"""Modules of routes, by the first and the third part of a path."""


@dataclass(frozen=True)
class Answer:
    """An HTTP response."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Reader:
    """The read-only API of one data directory, with the rights of its local key."""

    def __init__(self, config: Config, store: Store, events: EventLog) -> None:
        self._parts = _Parts(config, store, events)
        self._apps: dict[str, ASGIApp] = {}

    @classmethod
    async def open(cls, config: Config, store: Store) -> Reader:
        from paddock.events.log import EventLog

        return cls(config, store, await EventLog.open(store))

    async def get(self, path: str, query: str = "", headers: Mapping[str, str] | None = None) -> Answer:
        """Answer a GET request. Raises `NotFound` for paths that need a server."""
        from paddock.api.access import PRINCIPAL

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
            PRINCIPAL: await self._parts.principal(),
        }
        status = 500
        found: dict[str, str] = {}
        body = bytearray()

        async def send(message: Any) -> None:
            nonlocal status, found
            if message["type"] == "http.response.start":
                status = message["status"]
                found = {name.decode("latin-1"): value.decode("latin-1") for name, value in message["headers"]}
            body.extend(message.get("body", b""))

        requests = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> dict[str, Any]:
            if not requests:
                await asyncio.Event().wait()  # The caller never disconnects; waiting is cancelled with the response.
            return requests.pop()

        await self._app(path)(scope, receive, send)
        return Answer(status, found, bytes(body))

    def _app(self, path: str) -> ASGIApp:
        _, version, *parts = path.split("/")
        name = MODULES.get("/".join(parts[0:3:2])) or MODULES.get(parts[0])
        if version != "v1" or name is None:
            raise NotFound(f"{path} needs a running server")
        if name not in self._apps:
            from fastapi import FastAPI

            from paddock.api.errors import handle_errors

            app = FastAPI(openapi_url=None, redirect_slashes=False)
            routes = importlib.import_module(f"paddock.api.{name}").routes(cast("Services", self._parts)).routes
            app.router.routes.extend(routes)
            handle_errors(app)
            self._apps[name] = app
        return self._apps[name]


class _Parts:
    """What routes that read use of `Services`, each made when it is first used."""

    def __init__(self, config: Config, store: Store, events: EventLog) -> None:
        self.config = config
        self.events = events
        self._store = store

    async def principal(self) -> Principal:
        """Return the holder of the local key, or an administrator where that key does not work."""
        from paddock.auth.keys import LOCAL_KEY
        from paddock.auth.secrets import read_secret
        from paddock.errors import PaddockError
        from paddock.model.keys import DEFAULT_TENANT, Principal, Scope

        try:
            principal: Principal = await self.keys.authenticate(read_secret(self.config.data / "local.key") or "")
        except (PaddockError, OSError):
            return Principal(tenant=DEFAULT_TENANT, key_id=LOCAL_KEY, name=LOCAL_KEY, scopes=frozenset([Scope.ADMIN]))
        return principal

    async def prepare(self, path: str) -> None:
        """Read what a server has in memory."""
        if path.startswith("/v1/pools"):
            await self.fleet.pools.load()

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
    def keys(self) -> Any:
        from paddock.auth.keys import Keys
        from paddock.store.keys import KeyStore

        return Keys(KeyStore(self._store))

    @cached_property
    def archive(self) -> Archive:
        from paddock.llm.archive.archive import Archive

        return Archive.reading(self._store, self.config.llm.archive)

    @cached_property
    def ledger(self) -> Ledger:
        from paddock.llm.usage import Ledger
        from paddock.store.usage import UsageStore

        return Ledger(UsageStore(self._store))

    @cached_property
    def budgets(self) -> Any:
        from paddock.llm.budgets import Budgets

        return Budgets(self.ledger)

    @cached_property
    def live(self) -> Any:
        from paddock.live.recordings import Recordings

        return SimpleNamespace(recordings=Recordings(self.fleet, self.config.data / "recordings", self.config.live))

    @cached_property
    def runs(self) -> Runs:
        from paddock.runs.artifacts import Artifacts
        from paddock.runs.bundles import Bundles
        from paddock.runs.means import Means
        from paddock.runs.presets import Presets
        from paddock.runs.runs import Runs

        means = Means(
            config=self.config,
            fleet=self.fleet,
            images=self.images,
            gateway=cast(Any, None),
            events=self.events,
            presets=Presets(self.config.runs.presets, whose="the server"),
            bundles=Bundles(self.config.data / "bundles"),
            artifacts=Artifacts(None),
            folders=self.config.data / "runs",
        )
        return Runs(means, self._store)

    @cached_property
    def sessions(self) -> Sessions:
        from paddock.agents.calls import Calls
        from paddock.agents.files import Files
        from paddock.agents.sessions import Sessions

        unused: Any = None
        calls = Calls(self._store, self.events, self.config, unused)
        files = Files(self.config.data / "sessions", self.config.chat.file_size)
        return Sessions(
            self.config, self._store, self.events, unused, calls, unused, unused, files, unused, self.archive, unused
        )
