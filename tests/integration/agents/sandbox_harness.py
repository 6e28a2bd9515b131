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
from paddock.agents.session_files import SessionFiles
from paddock.agents.tools.toolbox import Toolbox
from paddock.agents.turns.takeover_pause import TakeoverPause
from paddock.config.schema import Config
from paddock.events.event_log import EventLog
from paddock.fleet.fleet import Fleet
from paddock.fleet.reconciler import Reconciler
from paddock.live.services import LiveServices
from paddock.live.tools.sandbox_mcp_server import SandboxMcpServers
from paddock.model.events import EventRecord
from paddock.model.sessions import CallResult, Session, ToolCall
from paddock.sandbox.images import ImageStore
from paddock.sandbox.local.backend import LocalBackend, LocalBackendSettings
from paddock.store.chat_sessions.session_store import SessionStore
from paddock.store.database import Store
from tests.integration.fleet.conftest import until

TENANT = "default"
HOST_KINDS = {"code": {"image": "host"}, "other": {"image": "host"}}


@dataclass
class SandboxHarness:
    """The parts of a server that handle session sandboxes."""

    data: Path
    store: Store
    events: EventLog
    fleet: Fleet
    live: LiveServices
    files: SessionFiles
    book: SessionStore
    toolbox: Toolbox
    parking: TakeoverPause

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
        await self.store.write(lambda connection: SessionStore.insert_session(connection, made))
        return made

    async def call(self, session: Session, name: str, /, **arguments: Any) -> CallResult:
        """Run a tool as the calls of a turn do."""
        specs = {spec.name: spec for spec in await self.toolbox.list_tools(session)}
        return await self.run(session, specs[name], arguments)

    async def run(self, session: Session, spec: ToolSpec, arguments: dict[str, Any]) -> CallResult:
        call = ToolCall(id=f"call-{os.urandom(4).hex()}", name=spec.name, arguments=arguments)
        return await self.toolbox.run_call(session, 1, call, spec)

    async def told(self, session: Session, *types: str) -> list[dict[str, Any]]:
        """The data of events of a session, of these types."""
        return [dict(event.data) for event in await self.all_told(session) if event.type.value in types]

    async def all_told(self, session: Session) -> list[EventRecord]:
        return list(await self.events.read(f"session/{session.id}", limit=1000))

    async def sandbox(self, session: Session, kind: str = "code") -> str:
        return (await self.book.get(session.id)).sandboxes[kind]

    def kill(self, sandbox_id: str) -> None:
        """End a sandbox as the host's kernel might: all at once, from outside."""
        assert isinstance(self.fleet.backend, LocalBackend)
        identity = self.fleet.backend._identity(sandbox_id)
        assert identity is not None
        os.kill(identity.pid, signal.SIGKILL)


@asynccontextmanager
async def open_sandbox_harness(data: Path, **settings: Any) -> AsyncIterator[SandboxHarness]:
    """Open the harness on a data directory."""
    document = {
        "data": data,
        "kinds": HOST_KINDS,
        "sandboxes": {"default_image": "host", "min_free_disk": 0, "reconcile_every": 0.2},
        **settings,
    }
    config = Config.model_validate(document)
    backend = LocalBackend(LocalBackendSettings(data=data))
    store = await Store.open(data / "paddock.db")
    events = await EventLog.open(store)
    attendant = SandboxMcpServers()
    fleet = Fleet(
        backend=backend,
        images=ImageStore(data / "images"),
        store=store,
        events=events,
        config=config,
        hooks=[attendant],
    )
    live = await LiveServices.open(fleet, events, config)
    attendant.connect(live.tools, live.display_watcher)
    keeper = Reconciler(fleet)
    await keeper.open()
    files, book = SessionFiles(data / "sessions", config.chat.file_size), SessionStore(store)
    toolbox = Toolbox(config, fleet, live, events, store, files)
    parking = TakeoverPause(live, events, store, files, book)
    parking.open()
    try:
        yield SandboxHarness(
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


async def remove_everything(data: Path) -> None:
    """Delete all sandboxes of a data directory."""
    async with open_sandbox_harness(data) as bench:
        for sandbox in (await bench.fleet.sandboxes.list(page_size=1000))[0]:
            await bench.fleet.end_sandbox(sandbox, "test over", keep=False)

        async def nothing_left() -> bool:
            return not await bench.fleet.backend.leftovers()

        await until(nothing_left)
