"""An entrypoint in a real sandbox, and what watches it."""

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
from paddock.runs.execution.end_conditions import CancelRequest, EntrypointEnd
from paddock.runs.execution.entrypoint_watch import COMMAND, EntrypointWatch, Verify, WatchSettings
from paddock.runs.execution.sandbox_health import HealthTimeouts
from paddock.runs.output.agent_event_publisher import AgentEvent, OutputReader
from paddock.sandbox.daemon.client import SandboxCommand
from tests.integration.fleet.conftest import Running, running

ME = "me"
QUICK = WatchSettings(
    grace=0.3,
    patience=HealthTimeouts(look=0.1, silent=0.2, frozen=0.3),
    tick=0.05,
    note_every=0.1,
    usage_every=0.05,
    verify_every=0.05,
)


@dataclass
class ParsedEvent:
    """An event of the reader below."""

    type: EventType
    data: dict[str, Any]


class Talk:
    """A reader of a very simple agent: `say …`, `turn`, `fail …`; everything else is output."""

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


class Counted:
    """Figures that the test sets."""

    def __init__(self) -> None:
        self._traffic = ModelUsage()
        self._news = asyncio.Event()

    def set(self, **figures: Any) -> None:
        self._traffic = ModelUsage(**figures)
        self._news.set()
        self._news = asyncio.Event()

    def traffic_of(self, run_id: str) -> ModelUsage:
        return self._traffic

    async def wait_for_change(self, run_id: str, after: ModelUsage | None = None) -> ModelUsage:
        while self._traffic == after:
            await self._news.wait()
        return self._traffic


@dataclass
class Watched:
    """A run with a running entrypoint, with the dependencies of `EntrypointWatch`."""

    machine: Running
    run: Run
    logs: Path
    progress: dict[str, Any] = field(default_factory=dict)
    cancel: CancelRequest = field(default_factory=CancelRequest)
    traffics: Counted = field(default_factory=Counted)

    def watch(
        self, reader: OutputReader | None = None, verify: Verify | None = None, settings: WatchSettings = QUICK
    ) -> EntrypointWatch:
        """Fresh objects, that know of earlier ones what is in the database and on disk."""

        async def note(noted: Mapping[str, Any]) -> None:
            self.progress["watch"] = dict(noted)

        return EntrypointWatch(
            self.run.model_copy(update={"progress": dict(self.progress)}),
            fleet=self.machine.fleet,
            traffics=self.traffics,
            logs=self.logs,
            store_progress=note,
            cancel=self.cancel,
            reader=reader,
            verify=verify,
            settings=settings,
        )

    async def until_over(self, reader: OutputReader | None = None, **more: Any) -> EntrypointEnd:
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

    def out(self) -> str:
        return (self.logs / "agent.out").read_text()

    async def processes(self) -> str:
        inside = await self.machine.fleet.running_client(ME, self.run.sandbox_id or "")
        return (await inside.run("ps -eo args")).stdout.decode()


@asynccontextmanager
async def entrypoint(
    data: Path,
    script: str,
    *,
    limits: SandboxLimits | None = None,
    settings: Mapping[str, Any] | None = None,
    **task: Any,
) -> AsyncIterator[Watched]:
    """A sandbox in which a script runs as the entrypoint of a run."""
    async with running(data, **(settings or {})) as machine:
        sandbox = await machine.fleet.create(ME, SandboxRequest(limits=limits or SandboxLimits()))
        inside = await machine.fleet.running_client(ME, sandbox.id)
        await inside.start(SandboxCommand(script, cwd="/workspace"), id=COMMAND)
        now = datetime.now(UTC)
        run = Run(
            id="run-1",
            tenant=ME,
            name="trial",
            task=Task.model_validate({"name": "trial", "goal": "work", "entrypoint": script, **task}),
            state=RunState.RUNNING,
            stage=RunStage.WATCH,
            sandbox_id=sandbox.id,
            model="some-model" if "agent" in task else None,
            created_at=now,
            changed_at=now,
        )
        yield Watched(machine, run, data / "logs")
