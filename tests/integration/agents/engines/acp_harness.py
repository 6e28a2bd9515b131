"""Harness with a fleet, the model proxy and the ACP engine, wired like a server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from paddock.agents.engines.acp.agent_programs import AGENT_PROGRAMS, AgentProgram
from paddock.agents.engines.acp.engine import AcpEngine
from paddock.agents.engines.base import Turn, TurnInput, TurnOutcome
from paddock.agents.engines.registry import EngineDependencies
from paddock.app.components import open_model_gateway
from paddock.auth.api_keys import ApiKeys
from paddock.config.schema import Config
from paddock.events.event_log import EventLog
from paddock.fleet.fleet import Fleet
from paddock.fleet.reconciler import Reconciler
from paddock.live.services import LiveServices
from paddock.llm.gateway.sandbox_access import SandboxModelAccess
from paddock.llm.wire.http_server import HttpServer
from paddock.model.sandbox import Sandbox
from paddock.model.sessions import Approval, Session
from paddock.sandbox.images import ImageStore
from paddock.sandbox.local.backend import LocalBackend, LocalBackendSettings
from paddock.store.database import Store
from paddock.store.key_store import ApiKeyStore
from paddock.testing.in_memory_turn import InMemoryTurn
from paddock.testing.turn_scripts import NOW

WAIT_TIMEOUT = 15.0
T = TypeVar("T")
SCRIPT = (Path(__file__).parent / "obedient_agent.py").read_text()
OBEDIENT_PROGRAM = AgentProgram(
    name="obedient",
    image="host",
    command=lambda model: ("python3", "/home/agent/obedient_agent.py"),
    files=lambda model: {"obedient_agent.py": SCRIPT},
)


@dataclass
class AcpHarness:
    """The parts of one server process."""

    dependencies: EngineDependencies
    engine: AcpEngine

    async def sandboxes(self, session: Session) -> list[Sandbox]:
        sandboxes, _ = await self.dependencies.fleet.list(session.tenant, metadata={"session": session.id})
        return list(sandboxes)

    async def run_command(self, command: str, session: Session) -> str:
        """Run a command in the session's sandbox."""
        (sandbox,) = await self.sandboxes(session)
        daemon = await self.dependencies.fleet.running_client(sandbox.tenant, sandbox.id)
        return (await daemon.run(command)).stdout.decode()

    async def log_entries(self, session: Session, name: str) -> list[Any]:
        """Return log entries of the obedient agent."""
        log = [json.loads(line) for line in (await self.run_command("cat ~/log.jsonl", session)).splitlines()]
        return [entry[name] for entry in log if name in entry]

    async def run_turn(self, turn: InMemoryTurn, turn_input: TurnInput) -> TurnOutcome:
        async with asyncio.timeout(WAIT_TIMEOUT):
            return await self.engine.run(turn, turn_input)

    async def run_prompt(self, turn: InMemoryTurn, text: str) -> TurnOutcome:
        return await self.run_turn(turn, turn.receive_message(text))


@asynccontextmanager
async def open_acp_harness(
    data: Path,
    *,
    llm: Mapping[str, Any] | None = None,
    images: Path | None = None,
    program: AgentProgram = OBEDIENT_PROGRAM,
    **chat: Any,
) -> AsyncIterator[AcpHarness]:
    """Open a harness on a data directory. Sandboxes outlive it, as they outlive a server."""
    settings = {
        "data": data,
        "sandboxes": {"min_free_disk": 0, "reconcile_every": 0.2},
        "llm": llm or {},
        "chat": chat,
    }
    config = Config.model_validate(settings)
    async with AsyncExitStack() as exit_stack:
        store = await Store.open(data / "paddock.db")
        exit_stack.push_async_callback(store.close)
        events = await EventLog.open(store)
        exit_stack.callback(events.close)
        keys = ApiKeys(ApiKeyStore(store))
        gateway = await open_model_gateway(config.llm, store, keys, exit_stack)
        backend = LocalBackend(LocalBackendSettings(data=data))
        exit_stack.push_async_callback(backend.close)
        http_server = HttpServer(gateway, max_body=2**26, max_connections=1000, memory_budget=gateway.memory_budget)
        exit_stack.push_async_callback(http_server.close)
        model_access = SandboxModelAccess(config.llm, keys, http_server)
        exit_stack.push_async_callback(model_access.close)
        image_store = ImageStore(images or data / "images")
        fleet = Fleet(
            backend=backend, images=image_store, store=store, events=events, config=config, hooks=[model_access]
        )
        exit_stack.push_async_callback(fleet.close)
        reconciler = Reconciler(fleet)
        exit_stack.push_async_callback(reconciler.close)
        await reconciler.open()
        live = await LiveServices.open(fleet, events, config)
        exit_stack.push_async_callback(live.close)
        dependencies = EngineDependencies(config, store, events, fleet, live, keys, image_store)
        engine = AcpEngine(dependencies, {**AGENT_PROGRAMS, program.name: program}, count_complete_messages)
        exit_stack.push_async_callback(engine.close)
        yield AcpHarness(dependencies, engine)


async def count_complete_messages(turn: Turn) -> int:
    """Count complete agent messages of an in-memory turn."""
    assert isinstance(turn, InMemoryTurn)
    messages = [message for message in turn.records.messages if message.turn == turn.number]
    return sum(message.role == "assistant" and message.cut is None for message in messages)


def make_session(agent: str, **fields: Any) -> Session:
    defaults = {"id": f"ses-{agent}", "tenant": "me", "agent": agent, "engine": "acp", "model": "script", **fields}
    return Session(**defaults, created_at=NOW, changed_at=NOW)


async def until(condition: Callable[[], Awaitable[T]], timeout: float = 30.0) -> T:
    """Wait until the condition returns a true value, and return it."""
    async with asyncio.timeout(timeout):
        while not (found := await condition()):
            await asyncio.sleep(0.02)
        return found


async def wait_for_pending(turn: InMemoryTurn, count: int = 1) -> list[Approval]:
    """Wait until so many approvals are pending, and return them."""
    async with asyncio.timeout(WAIT_TIMEOUT):
        await turn.wait_until(lambda: len(turn.pending_approvals) >= count)
    return turn.pending_approvals


def agent_texts(turn: InMemoryTurn) -> list[str]:
    """Return the texts of complete agent messages."""
    messages = [message for message in turn.records.messages if message.role == "assistant" and not message.cut]
    return [message.text.strip() for message in messages if message.text]


def call_results(turn: InMemoryTurn) -> dict[str, str]:
    """Return the results of calls by command."""
    calls_and_results = [(entry.call, entry.result) for entry in turn.records.ledger.values()]
    return {
        str(call.arguments.get("command", call.name)): result.text
        for call, result in calls_and_results
        if result is not None
    }
