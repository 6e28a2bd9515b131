"""Sessions that ask models through a real proxy; the models follow scripts, or a provider of the test's own."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from paddock.agents.engines.base import ModelReply, ReplyPiece, ToolSpec
from paddock.agents.model.model_requests import SessionModelClient
from paddock.agents.session_files import SessionFiles
from paddock.app.components import open_model_gateway
from paddock.app.server import DATABASE_FILE
from paddock.auth.api_keys import ApiKeys
from paddock.config.schema import Config
from paddock.events.event_log import EventLog
from paddock.llm.gateway.gateway import ModelGateway
from paddock.llm.wire.http_server import HttpServer
from paddock.model.events import EventRecord
from paddock.model.sessions import Session
from paddock.store.chat_sessions.session_store import SessionStore
from paddock.store.database import Store
from paddock.store.key_store import ApiKeyStore

TENANT = "me"
SHELL_TOOL = ToolSpec(
    name="code_run_shell_command",
    description="Runs a command.",
    input_schema={"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    kind="code",
    tool="run_shell_command",
    effect="command",
)


def user_message(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


class ModelHarness:
    """Everything that a `SessionModelClient` needs from a server."""

    def __init__(
        self,
        config: Config,
        store: Store,
        events: EventLog,
        keys: ApiKeys,
        gateway: ModelGateway,
        http_server: HttpServer,
    ) -> None:
        self.config = config
        self.store = store
        self.events = events
        self.keys = keys
        self.gateway = gateway
        self.http_server = http_server
        self.session_store = SessionStore(store)
        self.files = SessionFiles(config.data / "sessions", config.chat.file_size)
        self.pause_count = 0
        self.session_model = self.create_session_model()

    def create_session_model(self) -> SessionModelClient:
        """Return a second `SessionModelClient` that knows only stored state, as after a restart."""
        parts = (self.store, self.events, self.config, self.keys, self.http_server, self.files)
        return SessionModelClient(*parts, self._record_pause, self.gateway.compute_cost)

    async def _record_pause(self, session: Session) -> None:
        self.pause_count += 1

    async def create_session(self, model: str, **fields: Any) -> Session:
        now = datetime.now(UTC)
        session_id = fields.pop("id", "session-1")
        engine = {"agent": "langgraph", "engine": "langgraph"}
        session = Session(id=session_id, tenant=TENANT, **engine, model=model, created_at=now, changed_at=now, **fields)
        await self.store.write(lambda connection: SessionStore.insert_session(connection, session))
        return session

    async def ask_model(
        self,
        session: Session,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[ToolSpec] = (),
        *,
        turn: int = 1,
        by: str | None = None,
    ) -> list[ReplyPiece]:
        return [piece async for piece in self.session_model.ask_model(session, turn, messages, tools, by=by)]

    async def ask_for_reply(
        self, session: Session, messages: Sequence[Mapping[str, Any]], **options: Any
    ) -> ModelReply:
        last = (await self.ask_model(session, messages, **options))[-1]
        assert isinstance(last, ModelReply)
        return last

    async def list_events(self, session: Session, *ignored_types: str) -> list[EventRecord]:
        events = await self.events.read(f"session/{session.id}", limit=10_000)
        return [event for event in events if event.type not in ignored_types]

    async def event_types(self, session: Session, *ignored_types: str) -> list[str]:
        return [str(event.type) for event in await self.list_events(session, *ignored_types)]


@asynccontextmanager
async def open_model_harness(
    data: Path,
    scripts: Mapping[str, Any] | None = None,
    chat: Mapping[str, Any] | None = None,
    providers: Mapping[str, Any] | None = None,
) -> AsyncIterator[ModelHarness]:
    """Open a proxy with one model per script and provider, and a `SessionModelClient`."""
    all_providers: dict[str, Any] = dict(providers or {})
    for name, script in (scripts or {}).items():
        path = data / f"{name}.yaml"
        path.write_text(json.dumps(script))
        all_providers[name] = {"kind": "script", "file": str(path), "retries": 0}
    settings = {
        "data": data,
        "llm": {"providers": all_providers, "models": {name: name for name in all_providers}},
        "chat": chat or {},
    }
    config = Config.model_validate(settings)
    async with AsyncExitStack() as exit_stack:
        store = await exit_stack.enter_async_context(await Store.open(data / DATABASE_FILE))
        events = await EventLog.open(store)
        exit_stack.callback(events.close)
        keys = ApiKeys(ApiKeyStore(store))
        gateway = await open_model_gateway(config.llm, store, keys, exit_stack)
        http_server = HttpServer(
            gateway, max_body=config.llm.max_body, max_connections=100, memory_budget=gateway.memory_budget
        )
        exit_stack.push_async_callback(http_server.close)
        harness = ModelHarness(config, store, events, keys, gateway, http_server)
        await harness.session_model.open()
        exit_stack.push_async_callback(_close, harness)
        yield harness


async def _close(harness: ModelHarness) -> None:
    await harness.session_model.close()
