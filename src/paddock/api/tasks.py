"""Task files that the server offers, and whether a task is right."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastapi import APIRouter

from paddock.api.access import RunReader
from paddock.api.errors import documented
from paddock.api.json_bodies import LongJson
from paddock.api.kinds import is_built
from paddock.api.run_messages import (
    IssueSaid,
    TaskItem,
    TaskList,
    TaskSaid,
    TemplateItem,
    TemplateItems,
    TemplateSaid,
    ValidateBody,
    Verdict,
)
from paddock.api.services import Services
from paddock.config.schema import Config
from paddock.errors import InvalidInput, NotFound, PaddockError
from paddock.model.task import Task
from paddock.runs.folder import readable
from paddock.runs.issues import Level
from paddock.runs.matrix import expand
from paddock.runs.presets import wanted_model
from paddock.runs.problems import TaskError
from paddock.runs.readiness import model_of, readiness
from paddock.runs.schema import schema
from paddock.runs.stages import image_of, preset_of
from paddock.runs.taskfile import SUFFIXES, Loaded, load_task, parse_document, project_of, task_files
from paddock.runs.templates import find_template, own_tasks, portable, templates


def routes(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1/tasks", tags=["Tasks"], route_class=LongJson)

    @router.get("", responses=documented(), response_model_exclude_none=True)
    async def list_tasks(principal: RunReader) -> TaskList:
        """List the task files of `runs.tasks`, and what is wrong with those that cannot be run.

        A server in a checkout without that setting lists those that were added to the checkout's `tasks`.
        """
        return TaskList(items=await asyncio.to_thread(_items, services))

    @router.get("/templates", responses=documented(), response_model_exclude_none=True)
    async def list_task_templates(principal: RunReader) -> TemplateItems:
        """List the sample tasks that ship with Paddock. `POST /v1/runs` runs one by its name as `template`."""
        return TemplateItems(items=await asyncio.to_thread(_templates, services))

    @router.get("/templates/{name}", responses=documented(404), response_model_exclude_none=True)
    async def get_task_template(name: str, principal: RunReader) -> TemplateSaid:
        """Return one sample task, with its input files as texts."""
        return await asyncio.to_thread(_template, services, name)

    @router.get("/schema", responses=documented())
    async def get_task_schema(principal: RunReader) -> dict[str, Any]:
        """The JSON Schema of task files, for editors and other programs."""
        return schema()

    @router.post("/validate", responses=documented(), response_model_exclude_none=True)
    async def validate_task(body: ValidateBody, principal: RunReader) -> Verdict:
        """Check a task without running it: what is wrong with it, and what its run would lack or do first."""
        try:
            planned = expand(await asyncio.to_thread(parsed, services, body.task))
        except InvalidInput as error:
            return Verdict(valid=False, ready=False, error=error.message, issues=[], runs=[])
        await services.gateway.catalog.refresh()
        issues = await asyncio.to_thread(_issues, services, principal.tenant, planned)
        try:
            await asyncio.to_thread(check_all, services, principal.tenant, planned)
        except InvalidInput as error:
            return Verdict(valid=False, ready=False, error=error.message, issues=issues, runs=[])
        ready = all(each.level is not Level.ERROR for each in issues)
        models = [model_of(services.runs.means, task) for _, task in planned]
        return Verdict(
            valid=True,
            ready=ready,
            issues=issues,
            runs=[name for name, _ in planned],
            models=list(dict.fromkeys(name for name in models if name)),
        )

    @router.get("/{name}", responses=documented(404), response_model_exclude_none=True)
    async def get_task(name: str, principal: RunReader) -> TaskSaid:
        """One of the task files that the server offers, by its name with or without the ending."""
        loaded = await asyncio.to_thread(offered, services, name)
        task = loaded.task
        return TaskSaid(
            file=loaded.path.name,
            name=task.name,
            description=task.description,
            task=readable(task),
            runs=[each for each, _ in expand(task)],
        )

    return router


def parsed(services: Services, document: Mapping[str, Any]) -> Task:
    """A task from a request. Raises `InvalidInput`."""
    return parse_document(document, presets=services.runs.means.presets)


def check_all(services: Services, tenant: str, planned: Iterable[tuple[str, Task]]) -> None:
    """Raise `InvalidInput` for the first of some runs that cannot be, so that none of them is begun."""
    for _, task in planned:
        services.runs.check(tenant, task)


def _issues(services: Services, tenant: str, planned: Iterable[tuple[str, Task]]) -> list[IssueSaid]:
    """Issues of all runs, each once."""
    found = [issue for _, task in planned for issue in readiness(services.runs.means, tenant, task)]
    return [IssueSaid(**issue.model_dump()) for place, issue in enumerate(found) if issue not in found[:place]]


def offered(services: Services, name: str) -> Loaded:
    """A task file that the server offers. Raises `NotFound` naming those there are, `InvalidInput` if it is wrong."""
    files = {path.name: path for path in _files(services.config)}
    path = files.get(name) or next((files[name + end] for end in SUFFIXES if name + end in files), None)
    if path is None:
        known = ", ".join(sorted(files)) or "none; set runs.tasks to a directory with task files"
        raise NotFound(f"there is no task file {name!r} here; known are: {known}")
    return _load(services, path)


def _load(services: Services, path: Path) -> Loaded:
    """Load an offered task file. Errors name files relative to the task's project, never by their server path."""
    try:
        return load_task(path, presets=services.runs.means.presets)
    except TaskError as error:
        raise TaskError(
            replace(each, file=_relative(each.file, path), message=_relative(each.message, path))
            for each in error.problems
        ) from error


def _relative(text: str, path: Path) -> str:
    project = project_of(path)
    for directory in dict.fromkeys(map(str, (path.parent, path.parent.resolve(), project, project.resolve()))):
        text = text.replace(f"{directory}/", "").replace(directory, Path(directory).name)
    return text


def _templates(services: Services) -> list[TemplateItem]:
    return [_template_item(services, loaded) for loaded in templates(services.runs.means.presets)]


def _template(services: Services, name: str) -> TemplateSaid:
    loaded = find_template(name, services.runs.means.presets)
    item = _template_item(services, loaded)
    return TemplateSaid(**item.model_dump(), task=readable(portable(loaded)))


def _template_item(services: Services, loaded: Loaded) -> TemplateItem:
    means, task = services.runs.means, loaded.task
    preset = preset_of(means, task)
    image = image_of(means, task, preset)
    model = wanted_model(preset, task)
    scripted = task.llm.script is not None
    return TemplateItem(
        name=loaded.path.stem,
        description=task.description,
        agent=task.agent,
        model=model,
        image=image,
        image_built=is_built(services, image),
        scripted=scripted,
        needs_key=model is not None and not scripted,
    )


def _items(services: Services) -> list[TaskItem]:
    items: list[TaskItem] = []
    for path in _files(services.config):
        try:
            task = _load(services, path).task
            items.append(TaskItem(file=path.name, name=task.name, description=task.description or None))
        except PaddockError as error:
            items.append(TaskItem(file=path.name, error=error.message))
    return items


def _files(config: Config) -> list[Path]:
    directory = config.runs.tasks
    try:
        return task_files(directory) if directory is not None else own_tasks()
    except OSError:
        return []
