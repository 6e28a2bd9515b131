"""What each stage of a run does. All of it may be done again: whoever dies in the middle is followed by another."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from paddock.errors import BoxGone, BoxTimeout, Conflict, ImageNotFound, InvalidInput, Unavailable
from paddock.fleet.requests import CreateSandbox
from paddock.llm.routes import ModelNotFound
from paddock.llm.scripted import script_name
from paddock.mcp.declared import declare, secrets_of
from paddock.model.runs import Checked, Run
from paddock.model.sandbox import RUN, Sandbox, SandboxState
from paddock.model.task import WORKSPACE, Check, Task
from paddock.runs.masking import Masker
from paddock.runs.means import Means
from paddock.runs.model_choice import find_model, refresh_default
from paddock.runs.presets import PLAIN, Endpoints, Preset, Rendered, render
from paddock.runs.templates import SCRIPT_MODEL
from paddock.runs.watching import COMMAND
from paddock.sandbox.client import Command, Inside
from paddock.sandbox.images import Progress

MARGIN = 600.0
"""Seconds that a sandbox may live beyond its run's own limits, for putting in, taking out and checking."""
SLOWEST = 2**20
"""Bytes per second below which a box that takes or gives files is taken for stuck."""
PATIENCE = 120.0
SETTLING = 0.05
CHECK_OUTPUT = 64 * 1024
SHOWN = 2000
PIECE = 2**20
FILES_AT_ONCE = 8
SCRIPTED_KINDS = ("script", "replay")
T = TypeVar("T")


@dataclass(frozen=True)
class Admitted:
    """What an attempt works with."""

    image: str
    model: str | None
    scripted: bool
    instead_of: str | None = None
    """The agent's suggestion, where the server's default model takes its place."""


Building = Callable[[Progress], None]


async def admit(means: Means, run: Run, building: Building) -> Admitted:
    """Find the image and the model, building the image if only its recipe is there. Raises what is wrong with them."""
    preset = preset_of(means, run.task)
    image = image_of(means, run.task, preset)
    check_secrets(means, run.tenant, run.task)
    await refresh_default(means, run.task, preset)
    admitted = Admitted(image, *choose_model(means, run, preset))
    rendered(means, run.task, preset, admitted.model)
    if run.inputs is not None:
        means.bundles.path(run.tenant, run.inputs)
    try:
        await means.images.resolve_async(image)
    except ImageNotFound:
        if means.images.library.find(image) is None:
            raise
        await means.images.build_async(image, building)
    return admitted


def preset_of(means: Means, task: Task) -> Preset:
    return means.presets.get(task.agent or PLAIN)


def image_of(means: Means, task: Task, preset: Preset) -> str:
    wanted = task.image or (means.fleet.kinds.get(task.kind).image if task.kind else None)
    return wanted or (preset.image if task.agent else None) or means.config.sandboxes.default_image


def check_secrets(means: Means, tenant: str, task: Task) -> None:
    """Raise `InvalidInput` for secrets that the server does not have, or not for this tenant."""
    settings = means.config.runs
    known, wanted = settings.secrets, {*task.secrets, *secrets_of(task.mcp)}
    if wanted and not {tenant, "*"} & {*settings.secrets_for}:
        message = f"secrets: tasks of tenant {tenant} may name none; runs.secrets_for says whose may"
        raise InvalidInput(message, params={"tenant": tenant})
    if missing := sorted(name for name in wanted if name not in known):
        there = ", ".join(sorted(known)) or "none"
        raise InvalidInput(
            f"secrets: the server has no {missing[0]}; set runs.secrets.{missing[0]}. There are: {there}",
            params={"secret": missing[0]},
        )


def choose_model(means: Means, run: Run, preset: Preset) -> tuple[str | None, bool, str | None]:
    """Return the model's name, whether a script answers, and which model it replaces. Raises `ModelNotFound`."""
    llm = run.task.llm
    if llm.script is not None and llm.model == SCRIPT_MODEL:
        return script_name(run.id), True, None
    try:
        found = find_model(means, run.task, preset)
    except ModelNotFound:
        if llm.script is None:
            raise
        found = None
    if found is not None:
        return found.name, found.route.provider_settings.kind in SCRIPTED_KINDS, found.instead_of
    return (None, False, None) if llm.script is None else (script_name(run.id), True, None)


def rendered(means: Means, task: Task, preset: Preset, model: str | None, home: str = "/home/agent") -> Rendered:
    return render(preset, task, model=model, endpoints=Endpoints(home=home))


async def make_sandbox(means: Means, run: Run, image: str) -> Sandbox:
    """The attempt's sandbox, running: made now, or found again. Raises `BoxGone` when it has ended meanwhile."""
    request = _sandbox_request(means, run, image)
    sandbox = await means.fleet.create(run.tenant, request)
    if sandbox.state is SandboxState.FAILED and sandbox.reason == "interrupted":
        # Its start was cut short with the server that had asked for it, so nothing has ever run in it.
        await means.fleet.delete(run.tenant, sandbox.id)
        sandbox = await means.fleet.create(run.tenant, request)
    deadline = time.monotonic() + means.config.sandboxes.start_timeout + PATIENCE
    while sandbox.state is SandboxState.PENDING and time.monotonic() < deadline:  # Another server is starting it.
        await asyncio.sleep(SETTLING)
        sandbox = await means.fleet.get(run.tenant, sandbox.id)
    if sandbox.state is not SandboxState.RUNNING:
        raise BoxGone(f"the sandbox {sandbox.id} is {sandbox.state}: {sandbox.message or sandbox.reason}")
    return sandbox


def _sandbox_request(means: Means, run: Run, image: str) -> CreateSandbox:
    task = run.task
    life = task.end.timeout + sum(check.timeout for check in task.verify) + means.config.runs.grace + MARGIN
    wishes: dict[str, object] = {"run": run.id, "models": run.model}
    wishes |= {"budget-requests": task.llm.requests, "budget-tokens": task.llm.tokens, "budget-cost": task.llm.cost}
    return CreateSandbox(
        image=image,
        kind=task.kind,
        timeout=min(life, means.config.sandboxes.max_timeout),
        metadata={RUN: run.id, "paddock.task": task.name},
        owner=run.ownership,
        extensions={**declare(task.mcp), **_wishes(wishes)},
        limits=task.resources.limits(),
        request_key=request_key(run),
    )


def _wishes(wishes: Mapping[str, object]) -> dict[str, str]:
    return {f"paddock.llm.{name}": str(wish) for name, wish in wishes.items() if wish is not None}


def request_key(run: Run) -> str:
    return f"run-{run.id}-{run.attempt}"


async def home_of(means: Means, image: str) -> str:
    return (await means.images.resolve_async(image)).user.home


async def put_inputs(means: Means, run: Run, inside: Inside, files: Mapping[str, bytes]) -> None:
    """Put the bundle, the task's own texts and the agent's files into the box."""
    if run.inputs is not None:
        bundle = means.bundles.path(run.tenant, run.inputs)
        size = bundle.stat().st_size
        await _within(PATIENCE + size / SLOWEST, inside.put_archive(WORKSPACE, _pieces(bundle)))
    texts = {each.target: each.content.encode() for each in run.task.inputs if each.target and each.content is not None}
    at_once = asyncio.Semaphore(FILES_AT_ONCE)

    async def put(path: str, content: bytes) -> None:
        async with at_once:
            await _within(PATIENCE, inside.write_file(path, content))

    await asyncio.gather(*(put(path, content) for path, content in {**texts, **files}.items()))


async def start(means: Means, run: Run, inside: Inside, what: Rendered) -> None:
    """Start the entrypoint. Its id is fixed, so that doing this again changes nothing."""
    secrets = means.config.runs.secrets
    env = {**what.env, **{name: secrets[name].get_secret_value() for name in run.task.secrets}, "PADDOCK_RUN": run.id}
    await inside.start(Command(what.command, cwd=WORKSPACE, env=env), id=COMMAND)


async def run_check(inside: Inside, check: Check, env: Mapping[str, str], masker: Masker) -> Checked:
    """Run one check. Raises `BoxError` when the box does not answer, which says nothing of the check."""
    began = time.monotonic()
    command = Command(check.run, cwd=WORKSPACE, env=dict(env), timeout=check.timeout)
    done = await _within(check.timeout + PATIENCE, inside.run(command, limit=CHECK_OUTPUT))
    text = (done.stdout + done.stderr).decode(errors="replace")
    if done.reason and done.exit_code == 124:
        text += f"\n{done.reason}"
    return Checked(
        name=check.title,
        passed=done.exit_code == 0,
        required=check.required,
        weight=check.weight,
        exit_code=done.exit_code,
        seconds=round(time.monotonic() - began, 3),
        output=masker.text(text)[-SHOWN:],
    )


async def remove_sandbox(means: Means, run: Run) -> None:
    """End the attempt's sandbox, also one of which only the request is known. Raises `Unavailable` if it stays."""
    deadline = time.monotonic() + means.config.sandboxes.start_timeout + PATIENCE
    while (sandbox := await means.fleet.sandboxes.by_request_key(run.tenant, request_key(run))) is not None:
        try:
            await means.fleet.end(sandbox, "deleted", keep=False)
        except (Conflict, Unavailable) as error:
            # It is still starting, or its processes take their time.
            if time.monotonic() > deadline:
                raise Unavailable(f"the sandbox {sandbox.id} could not be removed: {error}") from error
            await asyncio.sleep(SETTLING)


async def evidence_of(means: Means, run: Run) -> dict[str, Any]:
    """What the fleet knows of a box that ended."""
    found = await means.fleet.sandboxes.by_request_key(run.tenant, request_key(run))
    if found is None:
        return {}
    evidence: dict[str, Any] = {"sandbox": found.id, "state": found.state, "reason": found.reason}
    evidence["message"] = found.message
    if found.record:
        status = await means.fleet.backend.status(found.record)
        evidence |= {"health": status.health, "exit_code": status.exit_code, "cause": status.reason}
        evidence["out_of_memory_kills"] = status.out_of_memory_kills or None
    return {name: value for name, value in evidence.items() if value is not None}


async def _within(seconds: float, work: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError as error:
        raise BoxTimeout(f"the box did not do in {seconds:.0f} s what it was asked") from error


async def _pieces(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while piece := await asyncio.to_thread(file.read, PIECE):
            yield piece
