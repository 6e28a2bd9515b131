"""Sessions that ask models through a real proxy; the models follow scripts, or a provider of the test's own."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from paddock.agents.engines.base import Piece, Reply, ToolSpec
from paddock.agents.files import Files
from paddock.agents.voice import Voice
from paddock.app import DATABASE, open_gateway
from paddock.auth.keys import Keys
from paddock.config.schema import Config
from paddock.events.log import EventLog
from paddock.llm.gateway import Gateway
from paddock.llm.wire.server import Door
from paddock.model.events import Event
from paddock.model.sessions import Session
from paddock.store.database import Store
from paddock.store.keys import KeyStore
from paddock.store.sessions import SessionStore

ME = "me"
SHELL = ToolSpec(
    name="code_run_shell_command",
    description="Runs a command.",
    input_schema={"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    kind="code",
    tool="run_shell_command",
    effect="command",
)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


class Stage:
    """One server's worth of what a voice needs."""

    def __init__(
        self, config: Config, store: Store, events: EventLog, keys: Keys, gateway: Gateway, door: Door
    ) -> None:
        self.config = config
        self.store = store
        self.events = events
        self.keys = keys
        self.gateway = gateway
        self.door = door
        self.book = SessionStore(store)
        self.files = Files(config.data / "sessions", config.chat.file_size)
        self.parked = 0
        self.voice = self.another_voice()

    def another_voice(self) -> Voice:
        """A voice that knows nothing but what is on disk, as after a restart."""
        parts = (self.store, self.events, self.config, self.keys, self.door, self.files)
        return Voice(*parts, self._park, self.gateway.cost)

    async def _park(self, session: Session) -> None:
        self.parked += 1

    async def session(self, model: str, **more: Any) -> Session:
        now = datetime.now(UTC)
        name = more.pop("id", "session-1")
        engine = {"agent": "langgraph", "engine": "langgraph"}
        made = Session(id=name, tenant=ME, **engine, model=model, created_at=now, changed_at=now, **more)
        await self.store.write(lambda connection: SessionStore.begin(connection, made))
        return made

    async def ask(
        self,
        session: Session,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[ToolSpec] = (),
        *,
        turn: int = 1,
        by: str | None = None,
    ) -> list[Piece]:
        return [piece async for piece in self.voice.ask(session, turn, messages, tools, by=by)]

    async def reply(self, session: Session, messages: Sequence[Mapping[str, Any]], **more: Any) -> Reply:
        last = (await self.ask(session, messages, **more))[-1]
        assert isinstance(last, Reply)
        return last

    async def told(self, session: Session, *but: str) -> list[Event]:
        found = await self.events.read(f"session/{session.id}", limit=10_000)
        return [event for event in found if event.type not in but]

    async def kinds(self, session: Session, *but: str) -> list[str]:
        return [str(event.type) for event in await self.told(session, *but)]


@asynccontextmanager
async def stage(
    data: Path,
    scripts: Mapping[str, Any] | None = None,
    chat: Mapping[str, Any] | None = None,
    providers: Mapping[str, Any] | None = None,
) -> AsyncIterator[Stage]:
    """A proxy with a model for each script and each provider, under its name, and a voice that is open."""
    made: dict[str, Any] = dict(providers or {})
    for name, script in (scripts or {}).items():
        path = data / f"{name}.yaml"
        path.write_text(json.dumps(script))
        made[name] = {"kind": "script", "file": str(path), "retries": 0}
    settings = {"data": data, "llm": {"providers": made, "models": {name: name for name in made}}, "chat": chat or {}}
    config = Config.model_validate(settings)
    async with AsyncExitStack() as held:
        store = await held.enter_async_context(await Store.open(data / DATABASE))
        events = await EventLog.open(store)
        held.callback(events.close)
        keys = Keys(KeyStore(store))
        gateway = await open_gateway(config.llm, store, keys, held)
        door = Door(gateway, max_body=config.llm.max_body, max_connections=100, room=gateway.room)
        held.push_async_callback(door.close)
        built = Stage(config, store, events, keys, gateway, door)
        await built.voice.open()
        held.push_async_callback(_close, built)
        yield built


async def _close(built: Stage) -> None:
    await built.voice.close()
