"""Measured tasks and a server that runs them."""

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
from paddock.runs.presets import LaunchPlan, PresetLibrary, ServiceAddresses, render_launch_plan
from peers import Paddock

TRIVIAL = {"name": "trivial", "goal": "Nothing.", "image": "host", "entrypoint": "true"}
MODEL = "bench"
AGENT = "claude-code"
SAID = "written by the agent"
SCENARIO = {"turns": [[{"shell": f"echo {SAID} > {WORKSPACE}/report.md"}], [{"say": "It is written."}]]}
HELLO = {
    "name": "hello",
    "agent": AGENT,
    "goal": "Write report.md.",
    "llm": {"model": MODEL},
    "deliverables": ["report.md"],
    "end": {"timeout": 300},
}
WAITED = 600.0
_PEAK = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL); "
_PEAK += "print('peak', resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, flush=True)"


def scripted(directory: Path) -> dict[str, object]:
    """Settings of the proxy with a model that follows a script."""
    file = directory / "scenario.yaml"
    file.write_text(json.dumps(SCENARIO))
    provider = {"kind": "script", "file": str(file)}
    return {"environment": False, "providers": {"scripted": provider}, "models": {MODEL: "scripted"}}


def by_hand(image: Image) -> LaunchPlan:
    """Return the command that a run of `HELLO` starts."""
    preset = PresetLibrary(()).get(AGENT)
    return render_launch_plan(
        preset, Task.model_validate(HELLO), model=MODEL, endpoints=ServiceAddresses(home=image.user.home)
    )


@dataclass(frozen=True)
class Seen:
    """A run as seen by a waiting client."""

    id: str
    asked: float
    """When it was asked for, in seconds since 1970."""
    seconds: float
    """From then until its end was known here."""
    stages: Mapping[str, float]
    """When each stage began, in seconds after it was asked for."""


@dataclass(frozen=True)
class Crowd:
    """Many runs made by one call of `paddock run`."""

    runs: Sequence[Mapping[str, Any]]
    seconds: float
    server: float
    """Processor seconds of the server itself."""
    sandboxes: float
    """Of what the server has started and waited for."""
    command: float
    """Of `paddock run`."""

    def succeeded(self) -> int:
        return sum(run.get("state") == "succeeded" for run in self.runs)


class Runs(Paddock):
    """A server that is asked for runs as any client would."""

    async def run(self, task: Mapping[str, object]) -> Seen:
        """Have one run made and wait for its end by its events."""
        asked, began = time.time(), time.perf_counter()
        run = (await self._call("POST", "/runs", json={"task": task}))["runs"][0]["id"]
        address = f"{self._url}/v1/runs/{run}/events"
        async with self._session.get(address, headers={"Accept": "text/event-stream"}) as answer:
            async for line in answer.content:
                if b"run.ended" in line:
                    break
            else:
                raise RuntimeError(f"the events of {run} broke off")
        seconds = time.perf_counter() - began
        page = await self._call("GET", f"/runs/{run}/events", headers={"Accept": "application/json"})
        state = page["items"][-1]["data"].get("state")
        if state != "succeeded":
            raise RuntimeError(f"{run} ended as {state}: {page['items'][-1]['data'].get('reason')}")
        return Seen(run, asked, seconds, dict(_stages(page["items"], asked)))

    async def first_request(self, **of: str) -> float:
        """When a run or a sandbox first asked a model, in seconds since 1970."""
        async with asyncio.timeout(WAITED):
            while not (items := (await self._call("GET", "/exchanges", params=of))["items"]):
                await asyncio.sleep(0.1)
        return min(datetime.fromisoformat(item["at"]).timestamp() for item in items)

    async def sandbox_with(self, image: Image, what: LaunchPlan) -> str:
        """A sandbox that runs already, with the agent's files in it."""
        request = {"image": {"uri": image.name}, "extensions": {"paddock.llm.models": MODEL}}
        sandbox = await self.create(**request)
        for path, content in what.files.items():
            text = base64.b64encode(content).decode()
            where = shlex.quote(path)
            await self.execute(sandbox, f"mkdir -p $(dirname {where}) && echo {text} | base64 -d > {where}")
        return sandbox

    async def start_by_hand(self, sandbox: str, what: LaunchPlan) -> float:
        """Start the agent in a sandbox, wait for its end, and return when it was started."""
        # Its output stays in the sandbox, so that relaying costs nothing.
        body = {"command": f"{_shell(what)} >/dev/null", "cwd": WORKSPACE, "envs": what.env}
        started = time.time()
        await self._call("POST", f"/sandboxes/{sandbox}/proxy/44772/command", json=body)
        return started

    async def peak(self, sandbox: str, what: LaunchPlan) -> float:
        """Bytes that the largest process of the agent had in memory."""
        words = ("python3", "-c", _PEAK, "sh", "-c", _shell(what))
        body = {"command": shlex.join(words), "cwd": WORKSPACE, "envs": what.env}
        output = (await self._call("POST", f"/sandboxes/{sandbox}/proxy/44772/command", json=body)).decode()
        return 1024 * float(output.partition("peak ")[2].split("\\")[0].split('"')[0])

    async def crowd(self, task: Mapping[str, object], count: int, parallel: int) -> Crowd:
        """The same task so often by one call of `paddock run`."""
        file = self._data / f"{task['name']}.yaml"
        file.write_text(json.dumps(task))
        words = (sys.executable, "-m", "paddock", "run", *[str(file)] * count, "--parallel", str(parallel), "--json")
        server, sandboxes, command = _cpu(self.process), _cpu(self.process, waited=True), _own_children()
        began = time.perf_counter()
        process = await asyncio.create_subprocess_exec(
            *(*words, "--data", str(self._data)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if not name.startswith("PADDOCK_")},
        )
        output, errors = await asyncio.wait_for(process.communicate(), WAITED)
        seconds = time.perf_counter() - began
        lines = output.splitlines()
        if not lines or b'"results"' not in lines[-1]:
            raise RuntimeError(f"paddock run: {errors.decode(errors='replace')[-2000:]}")
        return Crowd(
            runs=json.loads(lines[-1])["results"],
            seconds=seconds,
            server=_cpu(self.process) - server,
            sandboxes=_cpu(self.process, waited=True) - sandboxes,
            command=_own_children() - command,
        )


def _shell(what: LaunchPlan) -> str:
    return what.command if isinstance(what.command, str) else shlex.join(what.command)


def _stages(events: Iterable[Mapping[str, Any]], asked: float) -> Iterable[tuple[str, float]]:
    for event in events:
        at = datetime.fromisoformat(event["at"]).timestamp() - asked
        if event["type"] == "run.stage" and "step" not in event["data"]:
            yield event["data"]["stage"], at
        elif event["type"] in ("run.queued", "run.ended"):
            yield event["type"].partition(".")[2], at


def middle_of(runs: Sequence[Seen]) -> list[tuple[str, float]]:
    """How long each stage took, the middle of all runs; what comes before the first is asking for it."""
    took: dict[str, list[float]] = {}
    for run in runs:
        names = ["asked", *run.stages]
        for name, began, ended in zip(names, [0.0, *run.stages.values()], run.stages.values(), strict=False):
            took.setdefault(name, []).append(ended - began)
    return [(name, statistics.median(values)) for name, values in took.items()]


def _cpu(process: int, *, waited: bool = False) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    own = fields[13:15] if waited else fields[11:13]
    return sum(map(int, own)) / os.sysconf("SC_CLK_TCK")


def _own_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
