"""Choose the model of a run: the task's own, the one its agent suggests, or the server's default."""

from __future__ import annotations

from dataclasses import dataclass

from paddock.errors import InvalidInput
from paddock.llm.demo import is_demo
from paddock.llm.routes import ModelNotFound, Route
from paddock.model.task import Task
from paddock.runs.means import Means
from paddock.runs.presets import Preset, wanted_model


@dataclass(frozen=True)
class ModelChoice:
    """A model that the server has."""

    name: str
    route: Route
    instead_of: str | None = None
    """The agent's suggestion, where the server's default model takes its place."""


def find_model(means: Means, task: Task, preset: Preset) -> ModelChoice | None:
    """Return the model of a task, None where it needs none. Raises `ModelNotFound`, `InvalidInput` for a pattern."""
    wanted = wanted_model(preset, task)
    if wanted is None:
        return None
    try:
        return ModelChoice(wanted, means.gateway.routes.resolve(wanted))
    except ModelNotFound as error:
        default = _default(means, wanted) if takes_default(task) else None
        if default is not None:
            return default
        raise _explained(means, wanted, error) from None


def takes_default(task: Task) -> bool:
    """Whether the server's default model may answer. A task that names a model or has a script says its own."""
    return task.llm.model is None and task.llm.script is None


async def refresh_default(means: Means, task: Task, preset: Preset) -> None:
    """Wait briefly for the providers' lists of models if the default model is needed."""
    wanted = wanted_model(preset, task)
    if wanted is None or not takes_default(task):
        return
    try:
        means.gateway.routes.resolve(wanted)
    except ModelNotFound:
        await means.gateway.catalog.refresh()


def _default(means: Means, wanted: str) -> ModelChoice | None:
    name = means.gateway.catalog.default()
    if name is None:
        return None
    try:
        route = means.gateway.routes.resolve(name)
    except (ModelNotFound, InvalidInput):
        return None
    return None if is_demo(route.provider_settings) else ModelChoice(name, route, instead_of=wanted)


def _explained(means: Means, wanted: str, error: ModelNotFound) -> ModelNotFound:
    """Return the error with what to do next."""
    if error.params.get("known"):
        message = f"{error.message} Or give the task a script as 'llm.script'."
    else:
        connect = means.gateway.routes.how_to_connect(wanted)
        message = (
            f"There is no model {wanted[:200]!r}, as no model is connected: {connect}. "
            "Or run a template, which needs no key, or give the task a script as 'llm.script'."
        )
    return ModelNotFound(message, params=error.params)
