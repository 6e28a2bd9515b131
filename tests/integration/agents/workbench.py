"""Real sandboxes of chat sessions, with real records, and no server."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from paddock.agents.engines.base import ToolSpec
from paddock.agents.files import Files
from paddock.agents.parking import Parking
from paddock.agents.toolbox import Toolbox
from paddock.config.schema import Config
from paddock.events.log import EventLog
from paddock.fleet.fleet import Fleet
from paddock.fleet.keeper import Keeper
from paddock.live.attendant import OwnTools
from paddock.live.live import Live
from paddock.model.events import Event
from paddock.model.sessions import Call, CallResult, Session
from paddock.sandbox.images import ImageStore
from paddock.sandbox.local.backend import LocalBackend, LocalSettings
from paddock.store.database import Store
from paddock.store.sessions import SessionStore
from tests.integration.fleet.conftest import until

TENANT = "default"
HOSTS = {"code": {"image": "host"}, "other": {"image": "host"}}


@dataclass
class Workbench:
    """What a server has of sessions' sandboxes."""

    data: Path
    store: Store
    events: EventLog
    fleet: Fleet
    live: Live
    files: Files
    book: SessionStore
    toolbox: Toolbox
    parking: Parking

    async def session(self, *kinds: str, session_id: str = "ses-1", **changes: Any) -> Session:
        now = datetime.now(UTC)
        made = Session(
            id=session_id,
            tenant=TENANT,
            agent="langgraph",
            engine="langgraph",
            model="m",
            kinds=kinds or ("code",),
            created_at=now,
            changed_at=now,
        ).model_copy(update=changes)
        await self.store.write(lambda connection: SessionStore.begin(connection, made))
        return made

    async def call(self, session: Session, name: str, /, **arguments: Any) -> CallResult:
        """Run a tool as the calls of a turn do."""
        specs = {spec.name: spec for spec in await self.toolbox.tools(session)}
        return await self.run(session, specs[name], arguments)

    async def run(self, session: Session, spec: ToolSpec, arguments: dict[str, Any]) -> CallResult:
        call = Call(id=f"call-{os.urandom(4).hex()}", name=spec.name, arguments=arguments)
        return await self.toolbox.run(session, 1, call, spec)

    async def told(self, session: Session, *types: str) -> list[dict[str, Any]]:
        """The data of events of a session, of these types."""
        return [dict(event.data) for event in await self.all_told(session) if event.type.value in types]

    async def all_told(self, session: Session) -> list[Event]:
        return list(await self.events.read(f"session/{session.id}", limit=1000))

    async def box(self, session: Session, kind: str = "code") -> str:
        return (await self.book.get(session.id)).sandboxes[kind]

    def kill(self, sandbox_id: str) -> None:
        """End a box as the host's kernel might: all at once, from outside."""
        assert isinstance(self.fleet.backend, LocalBackend)
        identity = self.fleet.backend._identity(sandbox_id)
        assert identity is not None
        os.kill(identity.pid, signal.SIGKILL)


@asynccontextmanager
async def workbench(data: Path, **settings: Any) -> AsyncIterator[Workbench]:
    """All of it at work on a data directory, as a server has it."""
    document = {
        "data": data,
        "kinds": HOSTS,
        "sandboxes": {"default_image": "host", "min_free_disk": 0, "reconcile_every": 0.2},
        **settings,
    }
    config = Config.model_validate(document)
    backend = LocalBackend(LocalSettings(data=data))
    store = await Store.open(data / "paddock.db")
    events = await EventLog.open(store)
    attendant = OwnTools()
    fleet = Fleet(
        backend=backend,
        images=ImageStore(data / "images"),
        store=store,
        events=events,
        config=config,
        attendants=[attendant],
    )
    live = await Live.open(fleet, events, config)
    attendant.open(live.hands, live.displays)
    keeper = Keeper(fleet)
    await keeper.open()
    files, book = Files(data / "sessions", config.chat.file_size), SessionStore(store)
    toolbox = Toolbox(config, fleet, live, events, store, files)
    parking = Parking(live, events, store, files, book)
    parking.open()
    try:
        yield Workbench(
            data=data,
            store=store,
            events=events,
            fleet=fleet,
            live=live,
            files=files,
            book=book,
            toolbox=toolbox,
            parking=parking,
        )
    finally:
        await parking.close()
        await toolbox.close()
        await keeper.close()
        await live.close()
        await attendant.close()
        await fleet.close()
        events.close()
        await store.close()
        await backend.close()


async def tidy(data: Path) -> None:
    """See to it that no box of a data directory is left on the machine."""
    async with workbench(data) as bench:
        for sandbox in (await bench.fleet.sandboxes.list(page_size=1000))[0]:
            await bench.fleet.end(sandbox, "test over", keep=False)

        async def nothing_left() -> bool:
            return not await bench.fleet.backend.leftovers()

        await until(nothing_left)
