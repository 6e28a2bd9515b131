"""Check before a run whether a task can run on this server."""

from __future__ import annotations

from collections.abc import Iterator

from paddock.errors import ImageNotFound, InvalidInput, NotFound, PaddockError
from paddock.llm.gateway.model_routes import ModelNotFound
from paddock.model.task import Task
from paddock.runs.execution.run_service_dependencies import RunServiceDependencies
from paddock.runs.execution.stage_operations import (
    SCRIPTED_PROVIDER_KINDS,
    check_task_mcp_servers,
    check_task_secrets,
    choose_image_name,
    find_agent_preset,
)
from paddock.runs.presets import AgentPreset, UnsupportedTaskError, check_agent_supports_task, requested_model_name
from paddock.runs.tasks.model_choice import find_task_model
from paddock.runs.tasks.readiness_issues import IssueCode, IssueLevel, ReadinessIssue
from paddock.runs.tasks.task_templates import SCRIPT_MODEL


def check_task_readiness(dependencies: RunServiceDependencies, tenant: str, task: Task) -> None:
    """Raise `InvalidInput` for the first problem that needs neither a sandbox nor models to find."""
    for issue in find_blocking_issues(dependencies, tenant, task):
        raise InvalidInput(f"{issue.field}: {issue.message}" if issue.field else issue.message, params=issue.params)


def find_task_readiness_issues(dependencies: RunServiceDependencies, tenant: str, task: Task) -> list[ReadinessIssue]:
    """Return issues that prevent a run, then notices such as image builds. Reads the disk."""
    return [
        *find_blocking_issues(dependencies, tenant, task),
        *_find_model_issues(dependencies, task),
        *_find_image_builds(dependencies, task),
    ]


def find_blocking_issues(dependencies: RunServiceDependencies, tenant: str, task: Task) -> Iterator[ReadinessIssue]:
    try:
        preset = find_agent_preset(dependencies, task)
    except NotFound as error:
        yield ReadinessIssue(
            code=IssueCode.AGENT_NOT_FOUND, field="agent", message=error.message, params={"agent": task.agent or ""}
        )
        return
    try:
        check_agent_supports_task(preset, task)
    except UnsupportedTaskError as error:
        params = {"agent": preset.name}
        field = ".".join(map(str, error.field_path))
        yield ReadinessIssue(code=IssueCode.AGENT_UNFIT, field=field, message=error.detail, params=params)
    try:
        check_task_secrets(dependencies, tenant, task)
    except InvalidInput as error:
        code = IssueCode.SECRET_MISSING if "secret" in error.params else IssueCode.SECRETS_FORBIDDEN
        message = error.message.removeprefix("secrets: ")
        yield ReadinessIssue(code=code, field="secrets", message=message, params=error.params)
    try:
        check_task_mcp_servers(dependencies, tenant, task)
    except InvalidInput as error:
        message = error.message.removeprefix("mcp: ")
        yield ReadinessIssue(code=IssueCode.MCP_SERVER_NOT_FOUND, field="mcp", message=message, params=error.params)
    try:
        image = choose_image_name(dependencies, task, preset)
        dependencies.images.check(image)
    except InvalidInput as error:
        params = {"kind": task.kind or ""}
        yield ReadinessIssue(code=IssueCode.KIND_NOT_FOUND, field="kind", message=error.message, params=params)
    except ImageNotFound as error:
        yield ReadinessIssue(
            code=IssueCode.IMAGE_NOT_FOUND, field="image", message=error.message, params={"image": image}
        )
    try:
        dependencies.fleet.check_limits(task.resources.limits())
    except InvalidInput as error:
        yield ReadinessIssue(
            code=IssueCode.RESOURCES_EXCEEDED, field="resources", message=error.message, params=error.params
        )


def _find_model_issues(dependencies: RunServiceDependencies, task: Task) -> Iterator[ReadinessIssue]:
    preset = _find_preset(dependencies, task)
    if preset is None:
        return  # Reported as a fault.
    wanted = requested_model_name(preset, task)
    scripted = task.llm.script is not None
    answers = ReadinessIssue(
        code=IssueCode.SCRIPT_ANSWERS,
        level=IssueLevel.NOTICE,
        field="llm.model",
        message="a script answers in place of a model",
    )
    if scripted and wanted in (None, SCRIPT_MODEL):
        yield answers
        return
    try:
        found = find_task_model(dependencies, task, preset)
    except (ModelNotFound, InvalidInput) as error:
        if scripted:
            yield answers
        else:
            params = {"model": wanted or "", "known": "", **error.params}
            yield ReadinessIssue(
                code=IssueCode.MODEL_NOT_FOUND, field="llm.model", message=error.message, params=params
            )
        return
    if found is None:
        return
    route, routes, catalog = found.route, dependencies.gateway.routes, dependencies.gateway.catalog
    provider = route.settings.provider
    if found.replaced_model is not None:
        yield ReadinessIssue(
            code=IssueCode.DEFAULT_MODEL,
            level=IssueLevel.NOTICE,
            field="llm.model",
            message=f"there is no model {found.replaced_model!r}; the run uses the server's default, {found.name!r}",
            params={"model": found.name, "wanted": found.replaced_model},
        )
    if route.provider_settings.kind in SCRIPTED_PROVIDER_KINDS:
        yield answers
    elif routes.key_health.refused_at(provider) is not None:
        yield ReadinessIssue(
            code=IssueCode.PROVIDER_KEY_REFUSED,
            field="llm.model",
            message=f"the provider {provider} refused its API key; set another one and restart the server",
            params={"provider": provider, "model": found.name},
        )
    elif catalog.is_unreachable(provider):
        problem = catalog.model_list_problem(provider) or "it did not answer"
        yield ReadinessIssue(
            code=IssueCode.PROVIDER_UNREACHED,
            level=IssueLevel.NOTICE,
            field="llm.model",
            message=f"the provider {provider} was not reached: {problem}",
            params={"provider": provider, "problem": problem},
        )
    elif routes.is_failing(provider):
        yield ReadinessIssue(
            code=IssueCode.PROVIDER_FAILING,
            level=IssueLevel.NOTICE,
            field="llm.model",
            message=f"the provider {provider} has not answered its last requests; see Settings, Models",
            params={"provider": provider, "model": found.name},
        )


def model_for_task(dependencies: RunServiceDependencies, task: Task) -> str | None:
    """Return the model of a task's run; None for a script or without a model."""
    preset = _find_preset(dependencies, task)
    try:
        found = find_task_model(dependencies, task, preset) if preset is not None else None
    except (ModelNotFound, InvalidInput):
        return None
    return found.name if found is not None else None


def _find_image_builds(dependencies: RunServiceDependencies, task: Task) -> Iterator[ReadinessIssue]:
    preset = _find_preset(dependencies, task)
    if preset is None:
        return
    try:
        image = choose_image_name(dependencies, task, preset)
        dependencies.images.check(image)
    except PaddockError:
        return  # Reported as a fault.
    try:
        dependencies.images.resolve(image)
    except ImageNotFound:
        yield ReadinessIssue(
            code=IssueCode.IMAGE_NOT_BUILT,
            level=IssueLevel.NOTICE,
            field="image",
            message=f"the image {image} is not built yet; the run builds it first, which takes a few minutes",
            params={"image": image},
        )


def _find_preset(dependencies: RunServiceDependencies, task: Task) -> AgentPreset | None:
    try:
        return find_agent_preset(dependencies, task)
    except NotFound:
        return None
