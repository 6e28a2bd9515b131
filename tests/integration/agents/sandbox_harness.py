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
from paddock.agents.tools.toolbox import SessionToolbox
from paddock.agents.turns.takeover_pause import TakeoverPause
from paddock.config.schema import Config
from paddock.events.event_log import EventLog
from paddock.fleet.fleet import Fleet
from paddock.fleet.reconciler import Reconciler
from paddock.live.services import LiveServices
from paddock.live.tools.sandbox_mcp_server import SandboxMcpServers
from paddock.llm.wire.memory_budget import TOTAL_MEMORY, MemoryBudget, TenantMemoryBudgets
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
    session_store: SessionStore
    toolbox: SessionToolbox
    takeover_pause: TakeoverPause

    async def create_session(self, *kinds: str, session_id: str = "ses-1", **changes: Any) -> Session:
        now = datetime.now(UTC)
        session = Session(
            id=session_id,
            tenant=TENANT,
            agent="langgraph",
            engine="langgraph",
            model="m",
            kinds=kinds or ("code",),
            created_at=now,
            changed_at=now,
        ).model_copy(update=changes)
        await self.store.write(lambda connection: SessionStore.insert_session(connection, session))
        return session

    async def call_tool(self, session: Session, name: str, /, **arguments: Any) -> CallResult:
        """Run a tool as the calls of a turn do."""
        specs = {spec.name: spec for spec in await self.toolbox.list_tools(session)}
        return await self.run_tool(session, specs[name], arguments)

    async def run_tool(self, session: Session, spec: ToolSpec, arguments: dict[str, Any]) -> CallResult:
        call = ToolCall(id=f"call-{os.urandom(4).hex()}", name=spec.name, arguments=arguments)
        return await self.toolbox.run_call(session, 1, call, spec)

    async def events_of(self, session: Session, *types: str) -> list[dict[str, Any]]:
        """Return the data of a session's events of these types."""
        return [dict(event.data) for event in await self.list_events(session) if event.type.value in types]

    async def list_events(self, session: Session) -> list[EventRecord]:
        return list(await self.events.read(f"session/{session.id}", limit=1000))

    async def sandbox_id(self, session: Session, kind: str = "code") -> str:
        return (await self.session_store.get(session.id)).sandboxes[kind]

    def kill_sandbox(self, sandbox_id: str) -> None:
        """Kill a sandbox from outside, like the host's kernel."""
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
    sandbox_mcp_servers = SandboxMcpServers(TenantMemoryBudgets(MemoryBudget(TOTAL_MEMORY)).reservation)
    fleet = Fleet(
        backend=backend,
        images=ImageStore(data / "images"),
        store=store,
        events=events,
        config=config,
        hooks=[sandbox_mcp_servers],
    )
    live = await LiveServices.open(fleet, events, config)
    sandbox_mcp_servers.connect(live.tools, live.display_watcher)
    reconciler = Reconciler(fleet)
    await reconciler.open()
    files, session_store = SessionFiles(data / "sessions", config.chat.file_size), SessionStore(store)
    toolbox = SessionToolbox(config, fleet, live, events, store, files)
    takeover_pause = TakeoverPause(live, events, store, files, session_store)
    takeover_pause.open()
    try:
        yield SandboxHarness(
            data=data,
            store=store,
            events=events,
            fleet=fleet,
            live=live,
            files=files,
            session_store=session_store,
            toolbox=toolbox,
            takeover_pause=takeover_pause,
        )
    finally:
        await takeover_pause.close()
        await toolbox.close()
        await reconciler.close()
        await live.close()
        await sandbox_mcp_servers.close()
        await fleet.close()
        events.close()
        await store.close()
        await backend.close()


async def remove_everything(data: Path) -> None:
    """Delete all sandboxes of a data directory."""
    async with open_sandbox_harness(data) as harness:
        for sandbox in (await harness.fleet.sandboxes.list(page_size=1000))[0]:
            await harness.fleet.end_sandbox(sandbox, "test over", keep=False)

        async def nothing_is_left() -> bool:
            return not await harness.fleet.backend.leftovers()

        await until(nothing_is_left)
