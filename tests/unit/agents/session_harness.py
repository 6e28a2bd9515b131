"""Session service on a real database with real tool calls; tests write the engines, sandboxes are faked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from paddock.agents.approvals.tool_call_service import ToolCallService
from paddock.agents.engines.base import Engine, ToolSpec, Turn, TurnDone, TurnInput, TurnOutcome
from paddock.agents.session_files import SessionFiles
from paddock.agents.sessions.agent_choice import AvailableModels
from paddock.agents.sessions.session_service import CreateSessionRequest, MessageRequest, SessionService
from paddock.agents.turns.live_turn import LiveTurn, TurnFactory
from paddock.agents.turns.message_cache import SessionMessageCache
from paddock.config.schema import Config
from paddock.errors import InvalidInput
from paddock.events.event_log import EventLog
from paddock.llm.archive.archive import ExchangeArchive
from paddock.llm.gateway.model_routes import ModelRoutes
from paddock.model.events import EventRecord
from paddock.model.sessions import CallResult, Session, SessionMessage, TextContent, ToolCall
from paddock.store.chat_sessions.session_store import SessionStore
from paddock.store.database import Store

TENANT = "default"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(32)
TurnScript = Callable[[Turn, TurnInput], Awaitable[TurnOutcome]]
SCHEMA: Mapping[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}}
TOOLS = (
    ToolSpec(name="code_look", description="Look.", input_schema=SCHEMA, kind="code", tool="look", effect="none"),
    ToolSpec(name="code_do", description="Do.", input_schema=SCHEMA, kind="code", tool="do", effect="command"),
)


def make_config(data: Path, **chat: Any) -> Config:
    providers = {"here": {"kind": "script", "file": "/nowhere.yaml"}}
    models = {"small": "here", "large-*": "here"}
    return Config.model_validate(
        {"data": str(data), "llm": {"providers": providers, "models": models}, "chat": {"agent": "planned", **chat}}
    )


class ScriptedEngine(Engine):
    """Runs the scripts of a test in order; the last one is repeated."""

    name = "planned"

    def __init__(self, *scripts: TurnScript) -> None:
        self.scripts = list(scripts)
        self.inputs: list[TurnInput] = []
        self.released: list[str] = []

    async def run(self, turn: Turn, turn_input: TurnInput) -> TurnOutcome:
        self.inputs.append(turn_input)
        script = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
        return await script(turn, turn_input)

    async def release(self, session: Session) -> None:
        self.released.append(session.id)


class SingleEngineRegistry:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.names = ("acp", "planned")

    def get(self, name: str) -> Engine:
        assert name in self.names
        return self.engine


class FakeToolbox:
    """A toolbox that only records calls."""

    def __init__(self) -> None:
        self.calls_run: list[str] = []
        self.released_sandboxes: list[tuple[str, str]] = []
        self.deleted_sessions: list[str] = []
        self.attended_sessions: set[str] = set()
        self.run_gate: asyncio.Event | None = None
        self.networks: list[tuple[str, ...] | None] = []
        self.refused_network: tuple[str, ...] | None = None

    def check_network(self, tenant: str, policy: tuple[str, ...]) -> None:
        if policy == self.refused_network:
            raise InvalidInput("sandboxes of this server have no network")

    async def change_network(self, session: Session) -> None:
        self.networks.append(session.network)

    async def list_tools(self, session: Session) -> tuple[ToolSpec, ...]:
        return TOOLS

    async def system_prompt(self, session: Session) -> str:
        return "Be good."

    async def run_call(self, session: Session, turn: int, call: ToolCall, spec: ToolSpec) -> CallResult:
        self.calls_run.append(call.id)
        if self.run_gate is not None:
            await self.run_gate.wait()
        return CallResult(content=(TextContent(text=f"ran {call.id}"),))

    async def release_sandboxes(self, session: Session, reason: str) -> None:
        self.released_sandboxes.append((session.id, reason))

    async def is_attended(self, session: Session) -> bool:
        return session.id in self.attended_sessions

    async def delete_sandboxes(self, session: Session) -> None:
        self.deleted_sessions.append(session.id)


class FakeSessionModel:
    def __init__(self) -> None:
        self.recovered_sessions: list[str] = []
        self.revoked_keys: list[str] = []

    async def end_interrupted_messages(self, session: Session) -> None:
        self.recovered_sessions.append(session.id)

    async def revoke_key(self, session_id: str) -> None:
        self.revoked_keys.append(session_id)


class NeverPaused:
    async def pause_if_held(self, session: Session) -> bool:
        return False


class SessionHarness:
    """The session service of a server, without the rest of the server."""

    def __init__(
        self, config: Config, store: Store, events: EventLog, archive: ExchangeArchive, engine: Engine
    ) -> None:
        self.config = config
        self.store = store
        self.events = events
        self.engine = engine
        self.toolbox = FakeToolbox()
        self.session_model = FakeSessionModel()
        self.engines = SingleEngineRegistry(engine)
        self.session_store = SessionStore(store)
        self.files = SessionFiles(config.data / "sessions", config.chat.file_size)
        self.calls = ToolCallService(store, events, config, self.toolbox.run_call)
        self.turn_factory = TurnFactory(
            self.session_store,
            events,
            self.calls,
            cast(Any, self.session_model),
            cast(Any, self.toolbox),
            cast(Any, NeverPaused()),
            SessionMessageCache(self.session_store),
        )
        self.sessions = SessionService(
            config,
            store,
            events,
            cast(Any, self.engines),
            self.calls,
            cast(Any, self.toolbox),
            cast(Any, self.session_model),
            self.files,
            self.create_turn,
            archive,
            AvailableModels(self.create_routes(), self.default_model),
        )

    def create_routes(self) -> ModelRoutes:
        llm = self.config.llm
        return ModelRoutes(llm, {name: cast(Any, SimpleNamespace(name=name, kind="openai")) for name in llm.providers})

    async def default_model(self) -> str | None:
        return next((name for name in self.config.llm.models if "*" not in name), None)

    def create_turn(self, session: Session, number: int, first_message: SessionMessage | None = None) -> LiveTurn:
        return self.turn_factory.create_turn(session, number, first_message)

    async def create_session(self, **settings: Any) -> Session:
        return await self.sessions.create(TENANT, CreateSessionRequest(**settings), "ann")

    async def send_message(self, session: Session, text: str, request_key: str | None = None) -> SessionMessage:
        return (
            await self.sessions.send_message(TENANT, session.id, MessageRequest(text=text), "ann", request_key)
        ).message

    async def load_session(self, session: Session) -> Session:
        return await self.sessions.get(TENANT, session.id)

    async def list_events(self, session: Session) -> list[EventRecord]:
        return list(await self.events.read(f"session/{session.id}", limit=10_000))

    async def turn_events(self, session: Session) -> list[str]:
        """Return starts and ends of turns: `started message`, `ended done`."""
        return [
            f"{event.type.value.removeprefix('turn.')} {event.data.get('cause') or event.data.get('state')}"
            for event in await self.list_events(session)
            if event.type in ("turn.started", "turn.ended")
        ]

    async def wait_for_event(
        self, session: Session, condition: Callable[[EventRecord], bool], seconds: float = 10.0
    ) -> EventRecord:
        """Wait for the first event of the session that matches."""
        async with asyncio.timeout(seconds):
            async for event in self.events.follow(f"session/{session.id}"):
                if condition(event):
                    return event
        raise AssertionError("the stream ended")

    async def wait_for_turn_end(self, session: Session, state: str = "done", turn: int = 1) -> EventRecord:
        return await self.wait_for_event(
            session,
            lambda event: event.type == "turn.ended" and event.data["state"] == state and event.data["turn"] == turn,
        )


@asynccontextmanager
async def open_session_harness(path: Path, engine: Engine, **chat: Any) -> AsyncIterator[SessionHarness]:
    """Open a session harness; opening one again at the same path is a restart."""
    config = make_config(path / "data", **chat)
    async with await Store.open(config.data / "paddock.db") as store:
        events = await EventLog.open(store)
        archive = await ExchangeArchive.open(store, config.llm.archive)
        harness = SessionHarness(config, store, events, archive, engine)
        await harness.calls.open()
        await harness.sessions.open()
        try:
            yield harness
        finally:
            await harness.sessions.close()
            await harness.calls.close()
            await archive.close()
            events.close()


async def write_reply(turn: Turn, text: str, calls: Sequence[ToolCall] = ()) -> SessionMessage:
    """Store a reply of the agent, like `SessionModelClient`."""
    live_turn = cast(Any, turn)
    dependencies = getattr(live_turn, "_turn", live_turn)._dependencies
    message = SessionMessage(
        id=f"msg-{turn.number}-{text[:20].replace(' ', '-')}",
        session=turn.session.id,
        turn=turn.number,
        role="assistant",
        content=(TextContent(text=text),),
        calls=tuple(calls),
        at=datetime.now(UTC),
    )
    stored: SessionMessage = await dependencies.events.write_with_events(
        lambda connection: SessionStore.store_message(connection, message), lambda _: []
    )
    return stored


async def reply_done(turn: Turn, turn_input: TurnInput) -> TurnOutcome:
    await turn.unread_messages(())
    return TurnDone()
