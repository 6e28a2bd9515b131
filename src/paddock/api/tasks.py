"""Task files that the server offers, and whether a task is right."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fastapi import APIRouter

from paddock.api.access import RunReader
from paddock.api.errors import documented
from paddock.api.run_messages import TaskItem, TaskList, TaskSaid, ValidateBody, Verdict
from paddock.api.services import Services
from paddock.config.schema import Config
from paddock.errors import InvalidInput, NotFound, PaddockError
from paddock.model.task import Task
from paddock.runs.folder import readable
from paddock.runs.matrix import expand
from paddock.runs.schema import schema
from paddock.runs.taskfile import Loaded, load_task, parse_document

_SUFFIXES = (".yaml", ".yml", ".json")


def routes(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1/tasks", tags=["Tasks"])

    @router.get("", responses=documented(), response_model_exclude_none=True)
    async def list_tasks(principal: RunReader) -> TaskList:
        """The task files in the server's `runs.tasks`, and what is wrong with those that cannot be run."""
        return TaskList(items=await asyncio.to_thread(_items, services))

    @router.get("/schema", responses=documented())
    async def get_task_schema(principal: RunReader) -> dict[str, Any]:
        """The JSON Schema of task files, for editors and other programs."""
        return schema()

    @router.post("/validate", responses=documented(), response_model_exclude_none=True)
    async def validate_task(body: ValidateBody, principal: RunReader) -> Verdict:
        """Say whether a task could be run as it is, and what is wrong if not."""
        try:
            planned = expand(await asyncio.to_thread(parsed, services, body.task))
            await asyncio.to_thread(check_all, services, principal.tenant, planned)
            return Verdict(valid=True, runs=[name for name, _ in planned])
        except InvalidInput as error:
            return Verdict(valid=False, error=error.message, runs=[])

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


def offered(services: Services, name: str) -> Loaded:
    """A task file that the server offers. Raises `NotFound` naming those there are, `InvalidInput` if it is wrong."""
    files = {path.name: path for path in _files(services.config)}
    path = files.get(name) or next((files[name + end] for end in _SUFFIXES if name + end in files), None)
    if path is None:
        known = ", ".join(sorted(files)) or "none; set runs.tasks to a directory with task files"
        raise NotFound(f"there is no task file {name!r} here; known are: {known}")
    return load_task(path, presets=services.runs.means.presets)


def _items(services: Services) -> list[TaskItem]:
    items: list[TaskItem] = []
    presets = services.runs.means.presets
    for path in _files(services.config):
        try:
            task = load_task(path, presets=presets).task
            items.append(TaskItem(file=path.name, name=task.name, description=task.description or None))
        except PaddockError as error:
            items.append(TaskItem(file=path.name, error=error.message))
    return items


def _files(config: Config) -> list[Path]:
    directory = config.runs.tasks
    if directory is None:
        return []
    try:
        return sorted(path for path in directory.iterdir() if path.suffix in _SUFFIXES and path.is_file())
    except OSError:
        return []
