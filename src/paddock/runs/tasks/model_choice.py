"""Choose the model of a run: the task's own, the one its agent suggests, or the server's default."""

from __future__ import annotations

from dataclasses import dataclass

from paddock.errors import InvalidInput
from paddock.llm.demo import is_demo_provider
from paddock.llm.gateway.model_routes import ModelNotFound, ModelRoute
from paddock.model.task import Task
from paddock.runs.execution.run_service_dependencies import RunServiceDependencies
from paddock.runs.presets import AgentPreset, requested_model_name


@dataclass(frozen=True)
class RunModelChoice:
    """Chosen model of a run."""

    name: str
    route: ModelRoute
    replaced_model: str | None = None
    """The agent's suggested model, if the server's default replaces it."""


def find_task_model(dependencies: RunServiceDependencies, task: Task, preset: AgentPreset) -> RunModelChoice | None:
    """Return the model of a task, None where it needs none. Raises `ModelNotFound`, `InvalidInput` for a pattern."""
    wanted = requested_model_name(preset, task)
    if wanted is None:
        return None
    try:
        return RunModelChoice(wanted, dependencies.gateway.routes.resolve(wanted))
    except ModelNotFound as error:
        default = _default_model(dependencies, wanted) if uses_default_model(task) else None
        if default is not None:
            return default
        raise _with_advice(dependencies, wanted, error) from None


def uses_default_model(task: Task) -> bool:
    """Return whether the server's default model applies: the task names neither a model nor a script."""
    return task.llm.model is None and task.llm.script is None


async def refresh_models_for_default(dependencies: RunServiceDependencies, task: Task, preset: AgentPreset) -> None:
    """Wait briefly for the providers' lists of models if the default model is needed."""
    wanted = requested_model_name(preset, task)
    if wanted is None or not uses_default_model(task):
        return
    try:
        dependencies.gateway.routes.resolve(wanted)
    except ModelNotFound:
        await dependencies.gateway.catalog.refresh()


def _default_model(dependencies: RunServiceDependencies, wanted: str) -> RunModelChoice | None:
    name = dependencies.gateway.catalog.default()
    if name is None:
        return None
    try:
        route = dependencies.gateway.routes.resolve(name)
    except (ModelNotFound, InvalidInput):
        return None
    return None if is_demo_provider(route.provider_settings) else RunModelChoice(name, route, replaced_model=wanted)


def _with_advice(dependencies: RunServiceDependencies, wanted: str, error: ModelNotFound) -> ModelNotFound:
    """Return the error with advice."""
    if error.params.get("known"):
        message = f"{error.message} Or give the task a script as 'llm.script'."
    else:
        connect = dependencies.gateway.routes.connect_advice(wanted)
        message = (
            f"There is no model {wanted[:200]!r}, as no model is connected: {connect}. "
            "Or run a template, which needs no key, or give the task a script as 'llm.script'."
        )
    return ModelNotFound(message, params=error.params)
