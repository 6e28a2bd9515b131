"""A session centre on a real database with a real ledger; engines are written by the tests, sandboxes are not there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from paddock.agents.calls import Calls
from paddock.agents.engines.base import Done, Engine, Given, Outcome, ToolSpec, Turn
from paddock.agents.files import Files
from paddock.agents.memory import Memory
from paddock.agents.sessions import NewSession, Sessions, Written
from paddock.agents.turns import LiveTurn, Parts
from paddock.config.schema import Config
from paddock.events.log import EventLog
from paddock.llm.archive.archive import Archive
from paddock.model.events import Event
from paddock.model.sessions import Call, CallResult, Message, Session, TextContent
from paddock.store.database import Store
from paddock.store.sessions import SessionStore

TENANT = "default"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(32)
Plan = Callable[[Turn, Given], Awaitable[Outcome]]
SCHEMA: Mapping[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}}
TOOLS = (
    ToolSpec(name="code_look", description="Look.", input_schema=SCHEMA, kind="code", tool="look", effect="none"),
    ToolSpec(name="code_do", description="Do.", input_schema=SCHEMA, kind="code", tool="do", effect="command"),
)


def configured(data: Path, **chat: Any) -> Config:
    providers = {"here": {"kind": "script", "file": "/nowhere.yaml"}}
    models = {"small": "here", "large-*": "here"}
    return Config.model_validate(
        {"data": str(data), "llm": {"providers": providers, "models": models}, "chat": {"agent": "planned", **chat}}
    )


class PlannedEngine(Engine):
    """Does what a test has planned, one plan for each time it is run; the last one stays."""

    name = "planned"

    def __init__(self, *plans: Plan) -> None:
        self.plans = list(plans)
        self.given: list[Given] = []
        self.released: list[str] = []

    async def run(self, turn: Turn, given: Given) -> Outcome:
        self.given.append(given)
        plan = self.plans.pop(0) if len(self.plans) > 1 else self.plans[0]
        return await plan(turn, given)

    async def release(self, session: Session) -> None:
        self.released.append(session.id)


class OnlyEngines:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.names = ("acp", "planned")

    def get(self, name: str) -> Engine:
        assert name in self.names
        return self.engine


class NoSandboxes:
    """A toolbox whose tools only count how often they were run."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.released: list[tuple[str, str]] = []
        self.forgotten: list[str] = []
        self.attending: set[str] = set()
        self.hold: asyncio.Event | None = None

    async def tools(self, session: Session) -> tuple[ToolSpec, ...]:
        return TOOLS

    async def prompt(self, session: Session) -> str:
        return "Be good."

    async def run(self, session: Session, turn: int, call: Call, spec: ToolSpec) -> CallResult:
        self.ran.append(call.id)
        if self.hold is not None:
            await self.hold.wait()
        return CallResult(content=(TextContent(text=f"ran {call.id}"),))

    async def release(self, session: Session, reason: str) -> None:
        self.released.append((session.id, reason))

    async def attended(self, session: Session) -> bool:
        return session.id in self.attending

    async def forget(self, session: Session) -> None:
        self.forgotten.append(session.id)


class NoVoice:
    def __init__(self) -> None:
        self.recovered: list[str] = []
        self.forgotten: list[str] = []

    async def recover(self, session: Session) -> None:
        self.recovered.append(session.id)

    async def forget(self, session_id: str) -> None:
        self.forgotten.append(session_id)


class NobodyAtTheDesk:
    async def pause(self, session: Session) -> bool:
        return False


class Centre:
    """A server's sessions, without the rest of the server."""

    def __init__(self, config: Config, store: Store, events: EventLog, archive: Archive, engine: Engine) -> None:
        self.config = config
        self.store = store
        self.events = events
        self.engine = engine
        self.toolbox = NoSandboxes()
        self.voice = NoVoice()
        self.engines = OnlyEngines(engine)
        self.book = SessionStore(store)
        self.files = Files(config.data / "sessions", config.chat.file_size)
        self.calls = Calls(store, events, config, self.toolbox.run)
        self.parts = Parts(
            self.book,
            events,
            self.calls,
            cast(Any, self.voice),
            cast(Any, self.toolbox),
            cast(Any, NobodyAtTheDesk()),
            Memory(self.book),
        )
        self.sessions = Sessions(
            config,
            store,
            events,
            cast(Any, self.engines),
            self.calls,
            cast(Any, self.toolbox),
            cast(Any, self.voice),
            self.files,
            self.turn,
            archive,
            self.default_model,
        )

    async def default_model(self) -> str | None:
        return next((name for name in self.config.llm.models if "*" not in name), None)

    def turn(self, session: Session, number: int, first: Message | None = None) -> LiveTurn:
        return self.parts.turn(session, number, first)

    async def begin(self, **settings: Any) -> Session:
        return await self.sessions.create(TENANT, NewSession(**settings), "ann")

    async def say(self, session: Session, text: str, request_key: str | None = None) -> Message:
        return (await self.sessions.send(TENANT, session.id, Written(text=text), "ann", request_key)).message

    async def now(self, session: Session) -> Session:
        return await self.sessions.get(TENANT, session.id)

    async def told(self, session: Session) -> list[Event]:
        return list(await self.events.read(f"session/{session.id}", limit=10_000))

    async def turns(self, session: Session) -> list[str]:
        """What was told of turns: `started message`, `ended done`."""
        return [
            f"{event.type.value.removeprefix('turn.')} {event.data.get('cause') or event.data.get('state')}"
            for event in await self.told(session)
            if event.type in ("turn.started", "turn.ended")
        ]

    async def until(self, session: Session, holds: Callable[[Event], bool], seconds: float = 10.0) -> Event:
        """The first event of the session of which this holds."""
        async with asyncio.timeout(seconds):
            async for event in self.events.follow(f"session/{session.id}"):
                if holds(event):
                    return event
        raise AssertionError("the stream ended")

    async def ended(self, session: Session, state: str = "done", turn: int = 1) -> Event:
        return await self.until(
            session,
            lambda event: event.type == "turn.ended" and event.data["state"] == state and event.data["turn"] == turn,
        )


@asynccontextmanager
async def centre(path: Path, engine: Engine, **chat: Any) -> AsyncIterator[Centre]:
    """An open centre; opening one again at the same path is a restart."""
    config = configured(path / "data", **chat)
    async with await Store.open(config.data / "paddock.db") as store:
        events = await EventLog.open(store)
        archive = await Archive.open(store, config.llm.archive)
        made = Centre(config, store, events, archive, engine)
        await made.calls.open()
        await made.sessions.open()
        try:
            yield made
        finally:
            await made.sessions.close()
            await made.calls.close()
            await archive.close()
            events.close()


async def answer(turn: Turn, text: str, parts: Sequence[Call] = ()) -> Message:
    """Say something as the agent, as a voice would keep it."""
    live = cast(Any, turn)
    parts_of = getattr(live, "_turn", live)._parts
    message = Message(
        id=f"msg-{turn.number}-{text[:20].replace(' ', '-')}",
        session=turn.session.id,
        turn=turn.number,
        role="assistant",
        content=(TextContent(text=text),),
        calls=tuple(parts),
        at=datetime.now(UTC),
    )
    kept: Message = await parts_of.events.together(
        lambda connection: SessionStore.keep(connection, message), lambda _: []
    )
    return kept


async def done(turn: Turn, given: Given) -> Outcome:
    await turn.unread(())
    return Done()
