"""A server that runs the measured tasks, and timers of the runs."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import resource
import shlex
import statistics
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from paddock.model.sandbox import Image
from paddock.model.task import WORKSPACE, Task
from paddock.runs.presets import LaunchPlan, PresetLibrary, SandboxServiceAddresses, render_launch_plan
from support.paddock_server import PaddockServer

TRIVIAL_TASK = {"name": "trivial", "goal": "Nothing.", "image": "host", "entrypoint": "true"}
SCRIPTED_MODEL = "bench"
AGENT = "claude-code"
REPORT_TEXT = "written by the agent"
SCRIPT = {"turns": [[{"shell": f"echo {REPORT_TEXT} > {WORKSPACE}/report.md"}], [{"say": "It is written."}]]}
AGENT_TASK = {
    "name": "hello",
    "agent": AGENT,
    "goal": "Write report.md.",
    "llm": {"model": SCRIPTED_MODEL},
    "deliverables": ["report.md"],
    "end": {"timeout": 300},
}
WAIT_TIMEOUT = 600.0
_PEAK = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL); "
_PEAK += "print('peak', resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, flush=True)"


def scripted_model_settings(directory: Path) -> dict[str, object]:
    """Return proxy settings with a scripted model."""
    file = directory / "scenario.yaml"
    file.write_text(json.dumps(SCRIPT))
    provider = {"kind": "script", "file": str(file)}
    return {"environment": False, "providers": {"scripted": provider}, "models": {SCRIPTED_MODEL: "scripted"}}


def agent_launch_plan(image: Image) -> LaunchPlan:
    """Return the command that a run of `AGENT_TASK` starts."""
    preset = PresetLibrary(()).get(AGENT)
    return render_launch_plan(
        preset,
        Task.model_validate(AGENT_TASK),
        model=SCRIPTED_MODEL,
        endpoints=SandboxServiceAddresses(home=image.user.home),
    )


@dataclass(frozen=True)
class ObservedRun:
    """A run as observed by a waiting client."""

    id: str
    requested_at: float
    """Time of the request, in seconds since 1970."""
    seconds: float
    """Seconds from the request until the end was known to the client."""
    stages: Mapping[str, float]
    """Start of each stage, in seconds after the request."""


@dataclass(frozen=True)
class RunBatch:
    """Many runs started by one `paddock run`."""

    runs: Sequence[Mapping[str, Any]]
    seconds: float
    server_cpu: float
    """CPU seconds of the server itself."""
    sandbox_cpu: float
    """CPU seconds of finished child processes of the server."""
    command_cpu: float
    """CPU seconds of `paddock run`."""

    def count_succeeded(self) -> int:
        return sum(run.get("state") == "succeeded" for run in self.runs)


class TaskServer(PaddockServer):
    """A server. Benchmarks start runs through its API."""

    async def run_task(self, task: Mapping[str, object]) -> ObservedRun:
        """Start a run and wait for its end by following its events."""
        requested_at, started = time.time(), time.perf_counter()
        run = (await self._call("POST", "/runs", json={"task": task}))["runs"][0]["id"]
        address = f"{self._url}/v1/runs/{run}/events"
        async with self._session.get(address, headers={"Accept": "text/event-stream"}) as response:
            async for line in response.content:
                if b"run.ended" in line:
                    break
            else:
                raise RuntimeError(f"the events of {run} broke off")
        seconds = time.perf_counter() - started
        page = await self._call("GET", f"/runs/{run}/events", headers={"Accept": "application/json"})
        state = page["items"][-1]["data"].get("state")
        if state != "succeeded":
            raise RuntimeError(f"{run} ended as {state}: {page['items'][-1]['data'].get('reason')}")
        return ObservedRun(run, requested_at, seconds, dict(_stage_times(page["items"], requested_at)))

    async def first_model_request_time(self, **of: str) -> float:
        """Return the time of the first model request of a run or sandbox, in seconds since 1970."""
        async with asyncio.timeout(WAIT_TIMEOUT):
            while not (items := (await self._call("GET", "/exchanges", params=of))["items"]):
                await asyncio.sleep(0.1)
        return min(datetime.fromisoformat(item["at"]).timestamp() for item in items)

    async def create_agent_sandbox(self, image: Image, plan: LaunchPlan) -> str:
        """Create a sandbox with the agent's files in it."""
        request = {"image": {"uri": image.name}, "extensions": {"paddock.llm.models": SCRIPTED_MODEL}}
        sandbox = await self.create_sandbox(**request)
        for path, content in plan.files.items():
            text = base64.b64encode(content).decode()
            target = shlex.quote(path)
            await self.run_in_sandbox(sandbox, f"mkdir -p $(dirname {target}) && echo {text} | base64 -d > {target}")
        return sandbox

    async def start_agent(self, sandbox: str, plan: LaunchPlan) -> float:
        """Start the agent in a sandbox, wait for its end, and return when it was started."""
        # Its output stays in the sandbox, so that relaying costs nothing.
        body = {"command": f"{_shell_command(plan)} >/dev/null", "cwd": WORKSPACE, "envs": plan.env}
        started = time.time()
        await self._call("POST", f"/sandboxes/{sandbox}/proxy/44772/command", json=body)
        return started

    async def peak_agent_memory(self, sandbox: str, plan: LaunchPlan) -> float:
        """Return the peak memory of the agent's largest process in bytes."""
        words = ("python3", "-c", _PEAK, "sh", "-c", _shell_command(plan))
        body = {"command": shlex.join(words), "cwd": WORKSPACE, "envs": plan.env}
        output = (await self._call("POST", f"/sandboxes/{sandbox}/proxy/44772/command", json=body)).decode()
        return 1024 * float(output.partition("peak ")[2].split("\\")[0].split('"')[0])

    async def run_batch(self, task: Mapping[str, object], count: int, parallel: int) -> RunBatch:
        """Run a task `count` times with one `paddock run`."""
        file = self._data / f"{task['name']}.yaml"
        file.write_text(json.dumps(task))
        arguments = (
            sys.executable,
            "-m",
            "paddock",
            "run",
            *[str(file)] * count,
            "--parallel",
            str(parallel),
            "--json",
        )
        server_cpu, sandbox_cpu, command_cpu = (
            _cpu_seconds(self.process),
            _cpu_seconds(self.process, waited=True),
            _child_cpu_seconds(),
        )
        started = time.perf_counter()
        process = await asyncio.create_subprocess_exec(
            *(*arguments, "--data", str(self._data)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if not name.startswith("PADDOCK_")},
        )
        output, errors = await asyncio.wait_for(process.communicate(), WAIT_TIMEOUT)
        seconds = time.perf_counter() - started
        lines = output.splitlines()
        if not lines or b'"results"' not in lines[-1]:
            raise RuntimeError(f"paddock run: {errors.decode(errors='replace')[-2000:]}")
        return RunBatch(
            runs=json.loads(lines[-1])["results"],
            seconds=seconds,
            server_cpu=_cpu_seconds(self.process) - server_cpu,
            sandbox_cpu=_cpu_seconds(self.process, waited=True) - sandbox_cpu,
            command_cpu=_child_cpu_seconds() - command_cpu,
        )


def _shell_command(plan: LaunchPlan) -> str:
    return plan.command if isinstance(plan.command, str) else shlex.join(plan.command)


def _stage_times(events: Iterable[Mapping[str, Any]], requested_at: float) -> Iterable[tuple[str, float]]:
    for event in events:
        at = datetime.fromisoformat(event["at"]).timestamp() - requested_at
        if event["type"] == "run.stage" and "step" not in event["data"]:
            yield event["data"]["stage"], at
        elif event["type"] in ("run.queued", "run.ended"):
            yield event["type"].partition(".")[2], at


def median_stage_durations(runs: Sequence[ObservedRun]) -> list[tuple[str, float]]:
    """Return the median duration of each stage; the first entry is the time before the first stage."""
    durations: dict[str, list[float]] = {}
    for run in runs:
        names = ["requested", *run.stages]
        for name, began, ended in zip(names, [0.0, *run.stages.values()], run.stages.values(), strict=False):
            durations.setdefault(name, []).append(ended - began)
    return [(name, statistics.median(values)) for name, values in durations.items()]


def _cpu_seconds(process: int, *, waited: bool = False) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    own = fields[13:15] if waited else fields[11:13]
    return sum(map(int, own)) / os.sysconf("SC_CLK_TCK")


def _child_cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
