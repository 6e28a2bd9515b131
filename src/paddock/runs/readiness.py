"""Tells before a run whether a task can run here: what is missing, and what the run will do first."""

from __future__ import annotations

from collections.abc import Iterator

from paddock.errors import ImageNotFound, InvalidInput, NotFound, PaddockError
from paddock.llm.routes import ModelNotFound
from paddock.model.task import Task
from paddock.runs.issues import Issue, IssueCode, Level
from paddock.runs.means import Means
from paddock.runs.model_choice import find_model
from paddock.runs.presets import Preset, Unfit, check_fit, wanted_model
from paddock.runs.stages import SCRIPTED_KINDS, check_secrets, image_of, preset_of
from paddock.runs.templates import SCRIPT_MODEL


def check(means: Means, tenant: str, task: Task) -> None:
    """Raise `InvalidInput` for the first thing wrong with a task that shows without a sandbox and without models."""
    for issue in faults(means, tenant, task):
        raise InvalidInput(f"{issue.field}: {issue.message}" if issue.field else issue.message, params=issue.params)


def readiness(means: Means, tenant: str, task: Task) -> list[Issue]:
    """Return all that keeps a task from running, then what its run does first. Looks at the disk."""
    return [*faults(means, tenant, task), *_models(means, task), *_builds(means, task)]


def faults(means: Means, tenant: str, task: Task) -> Iterator[Issue]:
    try:
        preset = preset_of(means, task)
    except NotFound as error:
        yield Issue(
            code=IssueCode.AGENT_NOT_FOUND, field="agent", message=error.message, params={"agent": task.agent or ""}
        )
        return
    try:
        check_fit(preset, task)
    except Unfit as error:
        params = {"agent": preset.name}
        field = ".".join(map(str, error.way))
        yield Issue(code=IssueCode.AGENT_UNFIT, field=field, message=error.said, params=params)
    try:
        check_secrets(means, tenant, task)
    except InvalidInput as error:
        code = IssueCode.SECRET_MISSING if "secret" in error.params else IssueCode.SECRETS_FORBIDDEN
        message = error.message.removeprefix("secrets: ")
        yield Issue(code=code, field="secrets", message=message, params=error.params)
    try:
        image = image_of(means, task, preset)
        means.images.check(image)
    except InvalidInput as error:
        params = {"kind": task.kind or ""}
        yield Issue(code=IssueCode.KIND_NOT_FOUND, field="kind", message=error.message, params=params)
    except ImageNotFound as error:
        yield Issue(code=IssueCode.IMAGE_NOT_FOUND, field="image", message=error.message, params={"image": image})
    try:
        means.fleet.check_limits(task.resources.limits())
    except InvalidInput as error:
        yield Issue(code=IssueCode.RESOURCES_EXCEEDED, field="resources", message=error.message)


def _models(means: Means, task: Task) -> Iterator[Issue]:
    preset = _preset(means, task)
    if preset is None:
        return  # One of the faults.
    wanted = wanted_model(preset, task)
    scripted = task.llm.script is not None
    answers = Issue(
        code=IssueCode.SCRIPT_ANSWERS,
        level=Level.NOTICE,
        field="llm.model",
        message="a script answers in place of a model",
    )
    if scripted and wanted in (None, SCRIPT_MODEL):
        yield answers
        return
    try:
        found = find_model(means, task, preset)
    except (ModelNotFound, InvalidInput) as error:
        if scripted:
            yield answers
        else:
            params = {"model": wanted or "", "known": "", **error.params}
            yield Issue(code=IssueCode.MODEL_NOT_FOUND, field="llm.model", message=error.message, params=params)
        return
    if found is None:
        return
    route, routes = found.route, means.gateway.routes
    provider = route.settings.provider
    if found.instead_of is not None:
        yield Issue(
            code=IssueCode.DEFAULT_MODEL,
            level=Level.NOTICE,
            field="llm.model",
            message=f"there is no model {found.instead_of!r}; the run uses the server's default, {found.name!r}",
            params={"model": found.name, "wanted": found.instead_of},
        )
    if route.provider_settings.kind in SCRIPTED_KINDS:
        yield answers
    elif routes.keys.refused_at(provider) is not None:
        yield Issue(
            code=IssueCode.PROVIDER_KEY_REFUSED,
            field="llm.model",
            message=f"the provider {provider} refused its API key; set another one and restart the server",
            params={"provider": provider, "model": found.name},
        )
    elif routes.failing(provider):
        yield Issue(
            code=IssueCode.PROVIDER_FAILING,
            level=Level.NOTICE,
            field="llm.model",
            message=f"the provider {provider} has not answered its last requests; see Settings, Models",
            params={"provider": provider, "model": found.name},
        )


def model_of(means: Means, task: Task) -> str | None:
    """Return the model that a run of the task would ask, None for a script or where there is none."""
    preset = _preset(means, task)
    try:
        found = find_model(means, task, preset) if preset is not None else None
    except (ModelNotFound, InvalidInput):
        return None
    return found.name if found is not None else None


def _builds(means: Means, task: Task) -> Iterator[Issue]:
    preset = _preset(means, task)
    if preset is None:
        return
    try:
        image = image_of(means, task, preset)
        means.images.check(image)
    except PaddockError:
        return  # One of the faults.
    try:
        means.images.resolve(image)
    except ImageNotFound:
        yield Issue(
            code=IssueCode.IMAGE_NOT_BUILT,
            level=Level.NOTICE,
            field="image",
            message=f"the image {image} is not built yet; the run builds it first, which takes a few minutes",
            params={"image": image},
        )


def _preset(means: Means, task: Task) -> Preset | None:
    try:
        return preset_of(means, task)
    except NotFound:
        return None
