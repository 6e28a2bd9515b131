"""An entrypoint in a real sandbox, and its watch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from paddock.fleet.fleet_requests import SandboxRequest
from paddock.model.events import EventRecord, EventType
from paddock.model.runs import ModelUsage, Run, RunStage, RunState
from paddock.model.sandbox import SandboxLimits
from paddock.model.task import Task
from paddock.runs.execution.end_conditions import EntrypointOutcome, RunCancellation
from paddock.runs.execution.entrypoint_watch import (
    ENTRYPOINT_COMMAND_ID,
    EntrypointWatch,
    EntrypointWatchSettings,
    Verify,
)
from paddock.runs.execution.sandbox_health import SandboxHealthTimeouts
from paddock.runs.output.agent_event_publisher import AgentEvent, AgentOutputReader
from paddock.sandbox.daemon.client import SandboxCommand
from tests.integration.fleet.conftest import Running, running

TENANT = "me"
QUICK = EntrypointWatchSettings(
    grace=0.3,
    health_timeouts=SandboxHealthTimeouts(check_interval=0.1, answer_timeout=0.2, freeze_limit=0.3),
    check_interval=0.05,
    store_interval=0.1,
    usage_interval=0.05,
    verify_interval=0.05,
)


@dataclass
class ParsedEvent:
    """An event of the reader below."""

    type: EventType
    data: dict[str, Any]


class SimpleOutputReader:
    """Reader of a simple line format: `say …`, `turn`, `fail …`; other lines are output."""

    def __init__(self) -> None:
        self.turns = 0
        self.error: str | None = None
        self._rest = {"stdout": b"", "stderr": b""}

    def feed(self, stream: str, data: bytes) -> Sequence[AgentEvent]:
        *lines, self._rest[stream] = (self._rest[stream] + data).split(b"\n")
        return [event for line in lines for event in self._read(stream, line.decode(errors="replace"))]

    def close(self) -> Sequence[AgentEvent]:
        rest = [(stream, line) for stream, line in self._rest.items() if line]
        return [event for stream, line in rest for event in self._read(stream, line.decode(errors="replace"))]

    def _read(self, stream: str, line: str) -> list[ParsedEvent]:
        word, _, text = line.partition(" ")
        if word == "turn":
            self.turns += 1
            return []
        if word == "say":
            return [ParsedEvent(EventType.RUN_TEXT, {"text": text})]
        if word == "fail":
            self.error = text
            return [ParsedEvent(EventType.RUN_ERROR, {"message": text})]
        return [ParsedEvent(EventType.RUN_OUTPUT, {"stream": stream, "text": line})]


class FakeUsageSource:
    """Model usage set by the test."""

    def __init__(self) -> None:
        self._traffic = ModelUsage()
        self._changed = asyncio.Event()

    def set(self, **figures: Any) -> None:
        self._traffic = ModelUsage(**figures)
        self._changed.set()
        self._changed = asyncio.Event()

    def traffic_of(self, run_id: str) -> ModelUsage:
        return self._traffic

    async def wait_for_change(self, run_id: str, after: ModelUsage | None = None) -> ModelUsage:
        while self._traffic == after:
            await self._changed.wait()
        return self._traffic


@dataclass
class WatchedRun:
    """A run with a running entrypoint, with the dependencies of `EntrypointWatch`."""

    machine: Running
    run: Run
    logs: Path
    progress: dict[str, Any] = field(default_factory=dict)
    cancel: RunCancellation = field(default_factory=RunCancellation)
    usage_source: FakeUsageSource = field(default_factory=FakeUsageSource)

    def watch(
        self,
        reader: AgentOutputReader | None = None,
        verify: Verify | None = None,
        settings: EntrypointWatchSettings = QUICK,
    ) -> EntrypointWatch:
        """Create a watch that continues from the database and the files on disk, like a new server."""

        async def store(stored: Mapping[str, Any]) -> None:
            self.progress["watch"] = dict(stored)

        return EntrypointWatch(
            self.run.model_copy(update={"progress": dict(self.progress)}),
            fleet=self.machine.fleet,
            usage_source=self.usage_source,
            logs=self.logs,
            store_progress=store,
            cancel=self.cancel,
            reader=reader,
            verify=verify,
            settings=settings,
        )

    async def run_to_end(self, reader: AgentOutputReader | None = None, **more: Any) -> EntrypointOutcome:
        async with asyncio.timeout(60):
            return await self.watch(reader, **more).wait_until_end()

    async def events(self) -> list[EventRecord]:
        found: list[EventRecord] = []
        while page := await self.machine.fleet.events.read(f"run/{self.run.id}", len(found)):
            found.extend(page)
        return found

    async def text(self, *kinds: EventType) -> str:
        return "".join(event.data["text"] for event in await self.events() if event.type in kinds)

    async def output(self) -> str:
        return await self.text(EventType.RUN_OUTPUT)

    def log_text(self) -> str:
        return (self.logs / "agent.out").read_text()

    async def processes(self) -> str:
        daemon = await self.machine.fleet.running_client(TENANT, self.run.sandbox_id or "")
        return (await daemon.run("ps -eo args")).stdout.decode()


@asynccontextmanager
async def entrypoint(
    data: Path,
    script: str,
    *,
    limits: SandboxLimits | None = None,
    settings: Mapping[str, Any] | None = None,
    **task: Any,
) -> AsyncIterator[WatchedRun]:
    """Start a script as the entrypoint of a run in a new sandbox."""
    async with running(data, **(settings or {})) as machine:
        sandbox = await machine.fleet.create(TENANT, SandboxRequest(limits=limits or SandboxLimits()))
        daemon = await machine.fleet.running_client(TENANT, sandbox.id)
        await daemon.start(SandboxCommand(script, cwd="/workspace"), id=ENTRYPOINT_COMMAND_ID)
        now = datetime.now(UTC)
        run = Run(
            id="run-1",
            tenant=TENANT,
            name="trial",
            task=Task.model_validate({"name": "trial", "goal": "work", "entrypoint": script, **task}),
            state=RunState.RUNNING,
            stage=RunStage.WATCH,
            sandbox_id=sandbox.id,
            model="some-model" if "agent" in task else None,
            created_at=now,
            changed_at=now,
        )
        yield WatchedRun(machine, run, data / "logs")
