"""Routes for task files and sample tasks, and validation of tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastapi import APIRouter

from paddock.api.http.authorization import RunReader
from paddock.api.http.error_responses import openapi_errors
from paddock.api.http.long_json_route import LongJsonRoute
from paddock.api.runs.run_bodies import (
    TaskFileResponse,
    TaskIssueResponse,
    TaskListResponse,
    TaskResponse,
    TaskTemplateListResponse,
    TaskTemplateResponse,
    TaskTemplateSummaryResponse,
    TaskValidationResponse,
    ValidateTaskRequest,
)
from paddock.api.sandboxes.kind_routes import is_image_built
from paddock.api.services import ApiServices
from paddock.config.schema import Config
from paddock.errors import InvalidInput, NotFound, PaddockError
from paddock.model.task import Task
from paddock.runs.execution.stage_operations import choose_image_name, find_agent_preset
from paddock.runs.presets import requested_model_name
from paddock.runs.results.run_folder import mask_task_secrets
from paddock.runs.tasks.matrix_expansion import expand_task_matrix
from paddock.runs.tasks.readiness_check import find_task_readiness_issues, model_for_task
from paddock.runs.tasks.readiness_issues import IssueLevel
from paddock.runs.tasks.script_check import validate_long_script
from paddock.runs.tasks.task_file_loader import (
    TASK_FILE_SUFFIXES,
    LoadedTask,
    list_task_files,
    load_task_file,
    parse_task_document,
    task_project_root,
)
from paddock.runs.tasks.task_problems import InvalidTaskError
from paddock.runs.tasks.task_schema import task_json_schema
from paddock.runs.tasks.task_templates import (
    find_task_template,
    load_task_templates,
    task_with_inline_inputs,
    user_task_files,
)


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter(
        prefix="/v1/tasks", tags=["Tasks"], route_class=LongJsonRoute.with_workers(services.gateway.workers)
    )

    @router.get("", responses=openapi_errors(), response_model_exclude_none=True)
    async def list_tasks(principal: RunReader) -> TaskListResponse:
        """List the task files of `runs.tasks`, with the errors of invalid ones.

        Without that setting, a server in a checkout lists the files added to the checkout's `tasks`.
        """
        return TaskListResponse(items=await asyncio.to_thread(_list_task_files, services))

    @router.get("/templates", responses=openapi_errors(), response_model_exclude_none=True)
    async def list_task_templates(principal: RunReader) -> TaskTemplateListResponse:
        """List the sample tasks that ship with Paddock. `POST /v1/runs` runs one by its name as `template`."""
        return TaskTemplateListResponse(items=await asyncio.to_thread(_list_templates, services))

    @router.get("/templates/{name}", responses=openapi_errors(404), response_model_exclude_none=True)
    async def get_task_template(name: str, principal: RunReader) -> TaskTemplateResponse:
        """Return one sample task, with its input files as texts."""
        return await asyncio.to_thread(_load_template, services, name)

    @router.get("/schema", responses=openapi_errors())
    async def get_task_schema(principal: RunReader) -> dict[str, Any]:
        """Return the JSON Schema of task files, for editors and other programs."""
        return task_json_schema()

    @router.post("/validate", responses=openapi_errors(), response_model_exclude_none=True)
    async def validate_task(body: ValidateTaskRequest, principal: RunReader) -> TaskValidationResponse:
        """Validate a task without running it: errors, missing prerequisites and remarks."""
        try:
            planned = expand_task_matrix(await parse_task_request(services, body.task))
        except InvalidInput as error:
            return TaskValidationResponse(valid=False, ready=False, error=error.message, issues=[], runs=[])
        await services.gateway.catalog.refresh()
        issues = await asyncio.to_thread(_find_issues, services, principal.tenant, planned)
        try:
            await asyncio.to_thread(check_planned_runs, services, principal.tenant, planned)
        except InvalidInput as error:
            return TaskValidationResponse(valid=False, ready=False, error=error.message, issues=issues, runs=[])
        ready = all(each.level is not IssueLevel.ERROR for each in issues)
        models = [model_for_task(services.runs.dependencies, task) for _, task in planned]
        return TaskValidationResponse(
            valid=True,
            ready=ready,
            issues=issues,
            runs=[name for name, _ in planned],
            models=list(dict.fromkeys(name for name in models if name)),
        )

    @router.get("/{name}", responses=openapi_errors(404), response_model_exclude_none=True)
    async def get_task(name: str, principal: RunReader) -> TaskResponse:
        """Return one of the server's task files, by its name with or without the suffix."""
        loaded = await asyncio.to_thread(load_offered_task, services, name)
        task = loaded.task
        return TaskResponse(
            file=loaded.path.name,
            name=task.name,
            description=task.description,
            task=mask_task_secrets(task),
            runs=[each for each, _ in expand_task_matrix(task)],
        )

    return router


async def parse_task_request(services: ApiServices, document: Mapping[str, Any]) -> Task:
    """Parse a task from a request. Raises `InvalidInput`, `WorkersBusy`."""
    models = document.get("llm")
    if isinstance(models, Mapping):
        await validate_long_script(models.get("script"), services.gateway.workers)
    return await asyncio.to_thread(parse_task_document, document, presets=services.runs.dependencies.presets)


def check_planned_runs(services: ApiServices, tenant: str, planned: Iterable[tuple[str, Task]]) -> None:
    """Raise `InvalidInput` for the first run that cannot start, so that none is created."""
    for _, task in planned:
        services.runs.check_task(tenant, task)


def _find_issues(services: ApiServices, tenant: str, planned: Iterable[tuple[str, Task]]) -> list[TaskIssueResponse]:
    """Return the issues of all runs without duplicates."""
    found = [
        issue for _, task in planned for issue in find_task_readiness_issues(services.runs.dependencies, tenant, task)
    ]
    return [TaskIssueResponse(**issue.model_dump()) for index, issue in enumerate(found) if issue not in found[:index]]


def load_offered_task(services: ApiServices, name: str) -> LoadedTask:
    """Load a task file that the server offers.

    Raises `NotFound` naming the known files, and `InvalidInput` if the file is invalid.
    """
    files = {path.name: path for path in _offered_files(services.config)}
    path = files.get(name) or next((files[name + end] for end in TASK_FILE_SUFFIXES if name + end in files), None)
    if path is None:
        known = ", ".join(sorted(files)) or "none; set runs.tasks to a directory with task files"
        raise NotFound(f"there is no task file {name!r} here; known are: {known}")
    return _load_task_file(services, path)


def _load_task_file(services: ApiServices, path: Path) -> LoadedTask:
    """Load an offered task file. Errors name files relative to the task's project, never by their server path."""
    try:
        return load_task_file(path, presets=services.runs.dependencies.presets)
    except InvalidTaskError as error:
        raise InvalidTaskError(
            replace(each, file=_hide_directories(each.file, path), message=_hide_directories(each.message, path))
            for each in error.problems
        ) from error


def _hide_directories(text: str, path: Path) -> str:
    project = task_project_root(path)
    for directory in dict.fromkeys(map(str, (path.parent, path.parent.resolve(), project, project.resolve()))):
        text = text.replace(f"{directory}/", "").replace(directory, Path(directory).name)
    return text


def _list_templates(services: ApiServices) -> list[TaskTemplateSummaryResponse]:
    return [_template_summary(services, loaded) for loaded in load_task_templates(services.runs.dependencies.presets)]


def _load_template(services: ApiServices, name: str) -> TaskTemplateResponse:
    loaded = find_task_template(name, services.runs.dependencies.presets)
    item = _template_summary(services, loaded)
    return TaskTemplateResponse(**item.model_dump(), task=mask_task_secrets(task_with_inline_inputs(loaded)))


def _template_summary(services: ApiServices, loaded: LoadedTask) -> TaskTemplateSummaryResponse:
    dependencies, task = services.runs.dependencies, loaded.task
    preset = find_agent_preset(dependencies, task)
    image = choose_image_name(dependencies, task, preset)
    model = requested_model_name(preset, task)
    scripted = task.llm.script is not None
    return TaskTemplateSummaryResponse(
        name=loaded.path.stem,
        description=task.description,
        agent=task.agent,
        model=model,
        image=image,
        image_built=is_image_built(services, image),
        scripted=scripted,
        needs_key=model is not None and not scripted,
    )


def _list_task_files(services: ApiServices) -> list[TaskFileResponse]:
    items: list[TaskFileResponse] = []
    for path in _offered_files(services.config):
        try:
            task = _load_task_file(services, path).task
            items.append(TaskFileResponse(file=path.name, name=task.name, description=task.description or None))
        except PaddockError as error:
            items.append(TaskFileResponse(file=path.name, error=error.message))
    return items


def _offered_files(config: Config) -> list[Path]:
    directory = config.runs.tasks
    try:
        return list_task_files(directory) if directory is not None else user_task_files()
    except OSError:
        return []
