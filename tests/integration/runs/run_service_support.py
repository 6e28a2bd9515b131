"""A complete server without a port for tests of runs: real sandboxes on the host image, a real database."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from paddock.app.server import PaddockServer, build_server
from paddock.config.schema import Config
from paddock.model.events import EventRecord, EventType
from paddock.model.runs import Run, RunResult, RunStage
from paddock.model.task import Task
from paddock.telemetry.logging_setup import configure_logging

TENANT = "default"
TIMEOUT_SECONDS = 25.0


def settings(data: Path, **more: Any) -> dict[str, Any]:
    sandboxes = {"default_image": "host", "min_free_disk": 0, **more.pop("sandboxes", {})}
    runs = {"grace": 1, **more.pop("runs", {})}
    return {"data": str(data), "sandboxes": sandboxes, "runs": runs, **more}


@asynccontextmanager
async def open_server(data: Path, **more: Any) -> AsyncIterator[PaddockServer]:
    """A running server on a data directory. No sandbox may remain when it ends, unless runs are active."""
    async with build_server(Config.model_validate(settings(data, **more))) as paddock:
        yield paddock


def task(entrypoint: str | list[str] = "true", **fields: Any) -> Task:
    return Task.model_validate({"name": "work", "goal": "do it", "entrypoint": entrypoint, **fields})


async def wait_until_ended(paddock: PaddockServer, run: Run) -> Run:
    """Wait until a run has ended."""
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            async for event in paddock.events.follow(f"run/{run.id}"):
                if event.type.ends_stream:
                    break
    except TimeoutError:
        pytest.fail(f"did not end: {await paddock.runs.get(run.tenant, run.id)!r}")
    return await paddock.runs.get(run.tenant, run.id)


async def result_of(paddock: PaddockServer, work: Task, **more: Any) -> RunResult:
    run = await wait_until_ended(paddock, await paddock.runs.submit(TENANT, work, **more))
    assert run.result is not None
    return run.result


async def wait_for_stage(paddock: PaddockServer, run: Run, stage: RunStage) -> None:
    """Wait until a run has entered a stage; the first stage starts when the run is queued."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        async for event in paddock.events.follow(f"run/{run.id}"):
            if stage is RunStage.ADMIT or event.data.get("stage") == stage:
                return
            assert not event.type.ends_stream, f"ended before {stage}: {event.data}"


async def events_of(paddock: PaddockServer, run: Run) -> list[EventRecord]:
    return list(await paddock.events.read(f"run/{run.id}", limit=1000))


async def stages_of(paddock: PaddockServer, run: Run) -> list[str]:
    return [event.data["stage"] for event in await events_of(paddock, run) if event.type is EventType.RUN_STAGE]


async def assert_nothing_left(paddock: PaddockServer) -> None:
    """Check that no sandbox of any run is left on the machine."""
    assert await paddock.backend.leftovers() == []
    assert (await paddock.fleet.list(TENANT))[1] == 0


class ServerProcess:
    """A server in a separate process that can be killed. It reads tasks and prints events."""

    def __init__(self, data: Path, **more: Any) -> None:
        self._settings = settings(data, **more)
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> ServerProcess:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            __name__,
            json.dumps(self._settings),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=2**24,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    def submit(self, work: Task) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(work.model_dump_json().encode() + b"\n")

    async def events(self) -> AsyncIterator[Mapping[str, Any]]:
        assert self._process is not None and self._process.stdout is not None
        async with asyncio.timeout(TIMEOUT_SECONDS):
            async for line in self._process.stdout:
                yield json.loads(line)

    async def kill(self) -> None:
        assert self._process is not None
        if self._process.returncode is None:
            os.kill(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        # Events that no test has read keep the pipe open, and with it the process object.
        self._process._transport.close()  # type: ignore[attr-defined]


async def _serve(document: Mapping[str, Any]) -> None:
    config = Config.model_validate(document)
    configure_logging(config.log)  # Standard output is for events alone.
    async with build_server(config) as paddock:

        async def print_events() -> None:
            async for event in paddock.events.follow():
                if event.stream.startswith("run/"):
                    sys.stdout.write(event.model_dump_json() + "\n")
                    sys.stdout.flush()

        printing = asyncio.create_task(print_events())
        while line := await asyncio.to_thread(sys.stdin.readline):
            await paddock.runs.submit(TENANT, Task.model_validate_json(line))
        await printing


if __name__ == "__main__":
    asyncio.run(_serve(json.loads(sys.argv[1])))
