"""Operations of the stages of a run. All are idempotent, so another server can repeat an interrupted one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from paddock.errors import Conflict, ImageNotFound, InvalidInput, SandboxGone, SandboxTimeout, Unavailable
from paddock.fleet.fleet_requests import SandboxRequest
from paddock.llm.gateway.model_routes import ModelNotFound
from paddock.llm.providers.run_scripts import script_model_name
from paddock.mcp.declared_servers import AGENT_EXTENSION, mcp_servers_extension, referenced_secrets
from paddock.mcp.protocol import CallContext
from paddock.model.runs import Run
from paddock.model.sandbox import ROOT_USER, RUN_KEY, Sandbox, SandboxState
from paddock.model.task import WORKSPACE, Task
from paddock.runs.execution.entrypoint_watch import ENTRYPOINT_COMMAND_ID
from paddock.runs.execution.run_service_dependencies import RunServiceDependencies
from paddock.runs.presets import SCRIPT_PRESET, AgentPreset, LaunchPlan, SandboxServiceAddresses, render_launch_plan
from paddock.runs.tasks.model_choice import find_task_model, refresh_models_for_default
from paddock.runs.tasks.task_templates import SCRIPT_MODEL
from paddock.sandbox.daemon.client import DaemonClient, SandboxCommand
from paddock.sandbox.images import BuildProgress

SANDBOX_LIFETIME_MARGIN = 600.0
"""Extra lifetime of a sandbox for inputs, checks and deliverables."""
MIN_BYTES_PER_SECOND = 2**20
"""Transfer rate below which a sandbox counts as stuck."""
SANDBOX_TIMEOUT_SECONDS = 120.0
"""Time limit of a small request to a sandbox; starting, transfers and checks get it in addition to their own."""
POLL_INTERVAL = 0.05
CHUNK_SIZE = 2**20
PARALLEL_UPLOADS = 8
SCRIPTED_PROVIDER_KINDS = ("script", "replay")
T = TypeVar("T")


@dataclass(frozen=True)
class AdmittedRun:
    """Image and model of an attempt."""

    image: str
    model: str | None
    scripted: bool
    replaced_model: str | None = None
    """The agent's suggested model, if the server's default replaces it."""


OnBuildProgress = Callable[[BuildProgress], None]


async def admit_run(dependencies: RunServiceDependencies, run: Run, on_progress: OnBuildProgress) -> AdmittedRun:
    """Find the image and the model; build the image from its recipe if necessary."""
    preset = find_agent_preset(dependencies, run.task)
    image = choose_image_name(dependencies, run.task, preset)
    check_task_secrets(dependencies, run.tenant, run.task)
    check_task_mcp_servers(dependencies, run.tenant, run.task)
    dependencies.fleet.check_network(run.tenant, run.task.network)
    await refresh_models_for_default(dependencies, run.task, preset)
    admitted = AdmittedRun(image, *choose_run_model(dependencies, run, preset))
    create_launch_plan(dependencies, run.task, preset, admitted.model)
    if run.inputs is not None:
        dependencies.bundles.bundle_path(run.tenant, run.inputs)
    try:
        await dependencies.images.resolve_async(image)
    except ImageNotFound:
        if dependencies.images.library.find(image) is None:
            raise
        await dependencies.images.build_async(image, on_progress)
    return admitted


def find_agent_preset(dependencies: RunServiceDependencies, task: Task) -> AgentPreset:
    return dependencies.presets.get(task.agent or SCRIPT_PRESET)


def choose_image_name(dependencies: RunServiceDependencies, task: Task, preset: AgentPreset) -> str:
    wanted = task.image or (dependencies.fleet.kinds.get(task.kind).image if task.kind else None)
    return wanted or (preset.image if task.agent else None) or dependencies.config.sandboxes.default_image


def check_task_secrets(dependencies: RunServiceDependencies, tenant: str, task: Task) -> None:
    """Raise `InvalidInput` for secrets that are missing or belong to other tenants."""
    settings = dependencies.config.runs
    known, wanted = settings.secrets, {*task.secrets, *referenced_secrets(task.mcp)}
    if wanted and not {tenant, "*"} & {*settings.secrets_for}:
        message = f"secrets: tasks of tenant {tenant} may name none; runs.secrets_for says whose may"
        raise InvalidInput(message, params={"tenant": tenant})
    if missing := sorted(name for name in wanted if name not in known):
        there = ", ".join(sorted(known)) or "none"
        raise InvalidInput(
            f"secrets: the server has no {missing[0]}; set runs.secrets.{missing[0]}. There are: {there}",
            params={"secret": missing[0]},
        )


def check_task_mcp_servers(dependencies: RunServiceDependencies, tenant: str, task: Task) -> None:
    """Raise `InvalidInput` for names of MCP servers that do not exist for the tenant."""
    names = [server.name for server in task.mcp if server.is_reference]
    if names and dependencies.mcp is not None:
        context = CallContext(tenant=str(tenant), caller="", origin="run")
        dependencies.mcp.gateway.directory.check_names(names, context)


def choose_run_model(
    dependencies: RunServiceDependencies, run: Run, preset: AgentPreset
) -> tuple[str | None, bool, str | None]:
    """Return the model, whether a script answers, and the replaced model. Raises `ModelNotFound`."""
    llm = run.task.llm
    if llm.script is not None and llm.model == SCRIPT_MODEL:
        return script_model_name(run.id), True, None
    try:
        found = find_task_model(dependencies, run.task, preset)
    except ModelNotFound:
        if llm.script is None:
            raise
        found = None
    if found is not None:
        return found.name, found.route.provider_settings.kind in SCRIPTED_PROVIDER_KINDS, found.replaced_model
    return (None, False, None) if llm.script is None else (script_model_name(run.id), True, None)


def create_launch_plan(
    dependencies: RunServiceDependencies, task: Task, preset: AgentPreset, model: str | None, home: str = "/home/agent"
) -> LaunchPlan:
    return render_launch_plan(preset, task, model=model, endpoints=SandboxServiceAddresses(home=home))


async def create_run_sandbox(dependencies: RunServiceDependencies, run: Run, image: str) -> Sandbox:
    """Create or find the attempt's sandbox and wait until it runs. Raises `SandboxGone` if it ended."""
    request = _sandbox_request(dependencies, run, image)
    sandbox = await dependencies.fleet.create(run.tenant, request)
    if sandbox.state is SandboxState.FAILED and sandbox.reason == "interrupted":
        # The server stopped during its start, so nothing has run in it.
        await dependencies.fleet.delete(run.tenant, sandbox.id)
        sandbox = await dependencies.fleet.create(run.tenant, request)
    deadline = time.monotonic() + dependencies.config.sandboxes.start_timeout + SANDBOX_TIMEOUT_SECONDS
    while (
        sandbox.state is SandboxState.PENDING and time.monotonic() < deadline
    ):  # Another server is starting the sandbox.
        await asyncio.sleep(POLL_INTERVAL)
        sandbox = await dependencies.fleet.get(run.tenant, sandbox.id)
    if sandbox.state is not SandboxState.RUNNING:
        raise SandboxGone(f"the sandbox {sandbox.id} is {sandbox.state}: {sandbox.message or sandbox.reason}")
    return sandbox


def _sandbox_request(dependencies: RunServiceDependencies, run: Run, image: str) -> SandboxRequest:
    task = run.task
    life = (
        task.end.timeout
        + sum(check.timeout for check in task.verify)
        + dependencies.config.runs.grace
        + SANDBOX_LIFETIME_MARGIN
    )
    llm_settings: dict[str, object] = {"run": run.id, "models": run.model}
    llm_settings |= {
        "budget-requests": task.llm.requests,
        "budget-tokens": task.llm.tokens,
        "budget-cost": task.llm.cost,
    }
    # Programs get the task's variables, as they would from the agent.
    servers = mcp_servers_extension(
        server.model_copy(update={"env": {**task.env, **server.env}}) if server.command else server
        for server in task.mcp
    )
    if servers:
        servers[AGENT_EXTENSION] = task.agent or SCRIPT_PRESET
    return SandboxRequest(
        image=image,
        kind=task.kind,
        timeout=min(life, dependencies.config.sandboxes.max_timeout),
        metadata={RUN_KEY: run.id, "paddock.task": task.name},
        owner=run.ownership,
        extensions={**servers, **_llm_extensions(llm_settings)},
        limits=task.resources.limits(),
        network=task.network,
        user=task.user,
        request_key=sandbox_request_key(run),
    )


def _llm_extensions(settings: Mapping[str, object]) -> dict[str, str]:
    return {f"paddock.llm.{name}": str(value) for name, value in settings.items() if value is not None}


def sandbox_request_key(run: Run) -> str:
    return f"run-{run.id}-{run.attempt}"


async def sandbox_home_directory(dependencies: RunServiceDependencies, task: Task, image: str) -> str:
    if task.user == "root":
        return ROOT_USER.home
    return (await dependencies.images.resolve_async(image)).program_user.home


async def upload_run_inputs(
    dependencies: RunServiceDependencies, run: Run, daemon: DaemonClient, files: Mapping[str, bytes]
) -> None:
    """Upload the bundle, the task's inline files and the agent's files."""
    if run.inputs is not None:
        bundle = dependencies.bundles.bundle_path(run.tenant, run.inputs)
        size = bundle.stat().st_size
        await with_sandbox_timeout(
            SANDBOX_TIMEOUT_SECONDS + size / MIN_BYTES_PER_SECOND,
            daemon.put_archive(WORKSPACE, _read_in_chunks(bundle)),
        )
    texts = {each.target: each.content.encode() for each in run.task.inputs if each.target and each.content is not None}
    at_once = asyncio.Semaphore(PARALLEL_UPLOADS)

    async def put(path: str, content: bytes) -> None:
        async with at_once:
            await with_sandbox_timeout(SANDBOX_TIMEOUT_SECONDS, daemon.write_file(path, content))

    await asyncio.gather(*(put(path, content) for path, content in {**texts, **files}.items()))


async def start_entrypoint(
    dependencies: RunServiceDependencies, run: Run, daemon: DaemonClient, plan: LaunchPlan
) -> None:
    """Start the entrypoint. Idempotent: its command id is fixed."""
    secrets = dependencies.config.runs.secrets
    env = {**plan.env, **{name: secrets[name].get_secret_value() for name in run.task.secrets}, "PADDOCK_RUN": run.id}
    await daemon.start(SandboxCommand(plan.command, cwd=WORKSPACE, env=env), id=ENTRYPOINT_COMMAND_ID)


async def remove_run_sandbox(dependencies: RunServiceDependencies, run: Run) -> None:
    """Remove the attempt's sandbox, found by its request key. Raises `Unavailable` if that fails."""
    deadline = time.monotonic() + dependencies.config.sandboxes.start_timeout + SANDBOX_TIMEOUT_SECONDS
    while (
        sandbox := await dependencies.fleet.sandboxes.by_request_key(run.tenant, sandbox_request_key(run))
    ) is not None:
        try:
            await dependencies.fleet.end_sandbox(sandbox, "deleted", keep=False)
        except (Conflict, Unavailable) as error:
            # Still starting or stopping.
            if time.monotonic() > deadline:
                raise Unavailable(f"the sandbox {sandbox.id} could not be removed: {error}") from error
            await asyncio.sleep(POLL_INTERVAL)


async def ended_sandbox_evidence(dependencies: RunServiceDependencies, run: Run) -> dict[str, Any]:
    """Return the fleet's facts about an ended sandbox."""
    found = await dependencies.fleet.sandboxes.by_request_key(run.tenant, sandbox_request_key(run))
    if found is None:
        return {}
    evidence: dict[str, Any] = {"sandbox": found.id, "state": found.state, "reason": found.reason}
    evidence["message"] = found.message
    if found.record:
        status = await dependencies.fleet.backend.status(found.record)
        evidence |= {"health": status.health, "exit_code": status.exit_code, "cause": status.reason}
        evidence["out_of_memory_kills"] = status.out_of_memory_kills or None
    return {name: value for name, value in evidence.items() if value is not None}


async def with_sandbox_timeout(seconds: float, work: Awaitable[T]) -> T:
    """Return the result of a request to a sandbox. Raises `SandboxTimeout`."""
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError as error:
        raise SandboxTimeout(f"the sandbox did not answer within {seconds:.0f} s") from error


async def _read_in_chunks(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while chunk := await asyncio.to_thread(file.read, CHUNK_SIZE):
            yield chunk
