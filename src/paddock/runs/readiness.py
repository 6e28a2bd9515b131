"""Tells before a run whether a task can run here: what is missing, and what the run will do first."""

from __future__ import annotations

from collections.abc import Iterator

from paddock.errors import ImageNotFound, InvalidInput, NotFound, PaddockError
from paddock.llm.routes import ModelNotFound
from paddock.model.task import Task
from paddock.runs.issues import Issue, IssueCode, Level
from paddock.runs.means import Means
from paddock.runs.presets import Preset, Unfit, check_fit, wanted_model
from paddock.runs.stages import check_secrets, image_of, preset_of
from paddock.runs.templates import SCRIPT_MODEL

SCRIPTED_KINDS = ("script", "replay")


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
    wanted = wanted_model(preset, task) if preset is not None else task.llm.model
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
    if wanted is None:
        return
    routes = means.gateway.routes
    try:
        route = routes.resolve(wanted)
    except (ModelNotFound, InvalidInput) as error:
        if scripted:
            yield answers
        else:
            params = {"model": wanted, "known": "", **error.params}
            yield Issue(code=IssueCode.MODEL_NOT_FOUND, field="llm.model", message=error.message, params=params)
        return
    provider = route.settings.provider
    if route.provider_settings.kind in SCRIPTED_KINDS:
        yield answers
    elif routes.keys.refused_at(provider) is not None:
        yield Issue(
            code=IssueCode.PROVIDER_KEY_REFUSED,
            field="llm.model",
            message=f"the provider {provider} refused its API key; set another one and restart the server",
            params={"provider": provider, "model": wanted},
        )
    elif routes.failing(provider):
        yield Issue(
            code=IssueCode.PROVIDER_FAILING,
            level=Level.NOTICE,
            field="llm.model",
            message=f"the provider {provider} has not answered its last requests; see Settings, Models",
            params={"provider": provider, "model": wanted},
        )


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
