"""A fleet, the LLM proxy and the engine of agent programs, put together as a server has them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from paddock.agents.engines.acp.engine import AcpEngine
from paddock.agents.engines.acp.presets import PROGRAMS, Program
from paddock.agents.engines.base import Given, Outcome, Turn
from paddock.agents.engines.registry import Means
from paddock.agents.engines.rehearsal import Rehearsal
from paddock.agents.engines.rehearsed import NOW
from paddock.app import open_gateway
from paddock.auth.keys import Keys
from paddock.config.schema import Config
from paddock.events.log import EventLog
from paddock.fleet.fleet import Fleet
from paddock.fleet.keeper import Keeper
from paddock.live.live import Live
from paddock.llm.boxes import Boxes
from paddock.llm.wire.server import Door
from paddock.model.sandbox import Sandbox
from paddock.model.sessions import Approval, Session
from paddock.sandbox.images import ImageStore
from paddock.sandbox.local.backend import LocalBackend, LocalSettings
from paddock.store.database import Store
from paddock.store.keys import KeyStore

PATIENCE = 15.0
T = TypeVar("T")
SCRIPT = (Path(__file__).parent / "obedient_agent.py").read_text()
OBEDIENT = Program(
    name="obedient",
    image="host",
    command=lambda model: ("python3", "/home/agent/obedient_agent.py"),
    files=lambda model: {"obedient_agent.py": SCRIPT},
)


@dataclass
class Machine:
    """What one server process has."""

    means: Means
    engine: AcpEngine

    async def boxes(self, session: Session) -> list[Sandbox]:
        found, _ = await self.means.fleet.list(session.tenant, metadata={"session": session.id})
        return list(found)

    async def run(self, command: str, session: Session) -> str:
        """Run something in the session's box."""
        (box,) = await self.boxes(session)
        inside = await self.means.fleet.inside(box.tenant, box.id)
        return (await inside.run(command)).stdout.decode()

    async def noted(self, session: Session, name: str) -> list[Any]:
        """What the obedient agent has noted of something."""
        log = [json.loads(line) for line in (await self.run("cat ~/log.jsonl", session)).splitlines()]
        return [entry[name] for entry in log if name in entry]

    async def talk(self, turn: Rehearsal, given: Given) -> Outcome:
        async with asyncio.timeout(PATIENCE):
            return await self.engine.run(turn, given)

    async def says(self, turn: Rehearsal, text: str) -> Outcome:
        return await self.talk(turn, turn.says(text))


@asynccontextmanager
async def machine(
    data: Path,
    *,
    llm: Mapping[str, Any] | None = None,
    images: Path | None = None,
    program: Program = OBEDIENT,
    **chat: Any,
) -> AsyncIterator[Machine]:
    """A server's parts on a data directory. Boxes outlive it, as they do a server."""
    settings = {
        "data": data,
        "sandboxes": {"min_free_disk": 0, "reconcile_every": 0.2},
        "llm": llm or {},
        "chat": chat,
    }
    config = Config.model_validate(settings)
    async with AsyncExitStack() as held:
        store = await Store.open(data / "paddock.db")
        held.push_async_callback(store.close)
        events = await EventLog.open(store)
        held.callback(events.close)
        keys = Keys(KeyStore(store))
        gateway = await open_gateway(config.llm, store, keys, held)
        backend = LocalBackend(LocalSettings(data=data))
        held.push_async_callback(backend.close)
        door = Door(gateway, max_body=2**26, max_connections=1000, room=gateway.room)
        held.push_async_callback(door.close)
        boxes = Boxes(config.llm, keys, door)
        held.push_async_callback(boxes.close)
        store_of_images = ImageStore(images or data / "images")
        fleet = Fleet(
            backend=backend, images=store_of_images, store=store, events=events, config=config, attendants=[boxes]
        )
        held.push_async_callback(fleet.close)
        keeper = Keeper(fleet)
        held.push_async_callback(keeper.close)
        await keeper.open()
        live = await Live.open(fleet, events, config)
        held.push_async_callback(live.close)
        means = Means(config, store, events, fleet, live, keys, store_of_images)
        engine = AcpEngine(means, {**PROGRAMS, program.name: program}, kept)
        held.push_async_callback(engine.close)
        yield Machine(means, engine)


async def kept(turn: Turn) -> int:
    """How many whole messages of the agent a rehearsed turn has."""
    assert isinstance(turn, Rehearsal)
    messages = [message for message in turn.records.messages if message.turn == turn.number]
    return sum(message.role == "assistant" and message.cut is None for message in messages)


def session_of(agent: str, **more: Any) -> Session:
    about = {"id": f"ses-{agent}", "tenant": "me", "agent": agent, "engine": "acp", "model": "script", **more}
    return Session(**about, created_at=NOW, changed_at=NOW)


async def until(condition: Callable[[], Awaitable[T]], timeout: float = 30.0) -> T:
    """Wait for something to be found, for a bounded time."""
    async with asyncio.timeout(timeout):
        while not (found := await condition()):
            await asyncio.sleep(0.02)
        return found


async def pending(turn: Rehearsal, count: int = 1) -> list[Approval]:
    """What waits for a person, once there is that much of it."""
    async with asyncio.timeout(PATIENCE):
        await turn.until(lambda: len(turn.pending) >= count)
    return turn.pending


def said(turn: Rehearsal) -> list[str]:
    """What the agent has said in messages that came to their end, without what is only calls."""
    messages = [message for message in turn.records.messages if message.role == "assistant" and not message.cut]
    return [message.text.strip() for message in messages if message.text]


def results(turn: Rehearsal) -> dict[str, str]:
    """What came of calls, by what was run."""
    found = [(entry.call, entry.result) for entry in turn.records.ledger.values()]
    return {str(call.arguments.get("command", call.name)): result.text for call, result in found if result is not None}
