"""Session service on a real database with real tool calls; tests write the engines, sandboxes are faked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from paddock.agents.approvals.tool_calls import ToolCalls
from paddock.agents.engines.base import Engine, ToolSpec, Turn, TurnDone, TurnInput, TurnOutcome
from paddock.agents.session_files import SessionFiles
from paddock.agents.sessions.agent_choice import SessionModels
from paddock.agents.sessions.service import CreateSessionRequest, MessageRequest, SessionService
from paddock.agents.turns.live_turn import LiveTurn, TurnFactory
from paddock.agents.turns.message_cache import MessageCache
from paddock.config.schema import Config
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
    """Does what a test has planned, one plan for each time it is run; the last one stays."""

    name = "planned"

    def __init__(self, *plans: TurnScript) -> None:
        self.plans = list(plans)
        self.given: list[TurnInput] = []
        self.released: list[str] = []

    async def run(self, turn: Turn, given: TurnInput) -> TurnOutcome:
        self.given.append(given)
        plan = self.plans.pop(0) if len(self.plans) > 1 else self.plans[0]
        return await plan(turn, given)

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
    """A toolbox whose tools only record that they were run."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.released: list[tuple[str, str]] = []
        self.forgotten: list[str] = []
        self.attending: set[str] = set()
        self.hold: asyncio.Event | None = None

    async def list_tools(self, session: Session) -> tuple[ToolSpec, ...]:
        return TOOLS

    async def system_prompt(self, session: Session) -> str:
        return "Be good."

    async def run_call(self, session: Session, turn: int, call: ToolCall, spec: ToolSpec) -> CallResult:
        self.ran.append(call.id)
        if self.hold is not None:
            await self.hold.wait()
        return CallResult(content=(TextContent(text=f"ran {call.id}"),))

    async def release_sandboxes(self, session: Session, reason: str) -> None:
        self.released.append((session.id, reason))

    async def is_attended(self, session: Session) -> bool:
        return session.id in self.attending

    async def delete_sandboxes(self, session: Session) -> None:
        self.forgotten.append(session.id)


class FakeSessionModel:
    def __init__(self) -> None:
        self.recovered: list[str] = []
        self.forgotten: list[str] = []

    async def end_interrupted_messages(self, session: Session) -> None:
        self.recovered.append(session.id)

    async def revoke_key(self, session_id: str) -> None:
        self.forgotten.append(session_id)


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
        self.book = SessionStore(store)
        self.files = SessionFiles(config.data / "sessions", config.chat.file_size)
        self.calls = ToolCalls(store, events, config, self.toolbox.run_call)
        self.turn_factory = TurnFactory(
            self.book,
            events,
            self.calls,
            cast(Any, self.session_model),
            cast(Any, self.toolbox),
            cast(Any, NeverPaused()),
            MessageCache(self.book),
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
            self.turn,
            archive,
            SessionModels(self.routes(), self.default_model),
        )

    def routes(self) -> ModelRoutes:
        llm = self.config.llm
        return ModelRoutes(llm, {name: cast(Any, SimpleNamespace(name=name, kind="openai")) for name in llm.providers})

    async def default_model(self) -> str | None:
        return next((name for name in self.config.llm.models if "*" not in name), None)

    def turn(self, session: Session, number: int, first: SessionMessage | None = None) -> LiveTurn:
        return self.turn_factory.create_turn(session, number, first)

    async def begin(self, **settings: Any) -> Session:
        return await self.sessions.create(TENANT, CreateSessionRequest(**settings), "ann")

    async def say(self, session: Session, text: str, request_key: str | None = None) -> SessionMessage:
        return (
            await self.sessions.send_message(TENANT, session.id, MessageRequest(text=text), "ann", request_key)
        ).message

    async def now(self, session: Session) -> Session:
        return await self.sessions.get(TENANT, session.id)

    async def told(self, session: Session) -> list[EventRecord]:
        return list(await self.events.read(f"session/{session.id}", limit=10_000))

    async def turns(self, session: Session) -> list[str]:
        """Return starts and ends of turns: `started message`, `ended done`."""
        return [
            f"{event.type.value.removeprefix('turn.')} {event.data.get('cause') or event.data.get('state')}"
            for event in await self.told(session)
            if event.type in ("turn.started", "turn.ended")
        ]

    async def until(self, session: Session, holds: Callable[[EventRecord], bool], seconds: float = 10.0) -> EventRecord:
        """Wait for the first event of the session that matches."""
        async with asyncio.timeout(seconds):
            async for event in self.events.follow(f"session/{session.id}"):
                if holds(event):
                    return event
        raise AssertionError("the stream ended")

    async def ended(self, session: Session, state: str = "done", turn: int = 1) -> EventRecord:
        return await self.until(
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


async def write_reply(turn: Turn, text: str, parts: Sequence[ToolCall] = ()) -> SessionMessage:
    """Store a reply of the agent, like `SessionModel`."""
    live = cast(Any, turn)
    dependencies = getattr(live, "_turn", live)._dependencies
    message = SessionMessage(
        id=f"msg-{turn.number}-{text[:20].replace(' ', '-')}",
        session=turn.session.id,
        turn=turn.number,
        role="assistant",
        content=(TextContent(text=text),),
        calls=tuple(parts),
        at=datetime.now(UTC),
    )
    stored: SessionMessage = await dependencies.events.write_with_events(
        lambda connection: SessionStore.keep(connection, message), lambda _: []
    )
    return stored


async def reply_done(turn: Turn, given: TurnInput) -> TurnOutcome:
    await turn.unread_messages(())
    return TurnDone()
