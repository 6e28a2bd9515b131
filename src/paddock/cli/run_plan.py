"""Task files made ready to be run: read, changed by flags, spread over their matrix, checked."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.cli.failure import CliError, UsageProblem
from paddock.cli.output import plain
from paddock.cli.run_progress import Progress

if TYPE_CHECKING:
    from paddock.model.task import Task
    from paddock.runs.taskfile import Loaded


@dataclass
class Job:
    """One run that is to be made."""

    name: str
    task: Task
    origin: Loaded
    """The file that it is from, whose inputs it gets."""
    group: str | None
    key: str = field(default_factory=lambda: secrets.token_hex(16))
    """With it, asking again makes no second run."""
    run: dict[str, Any] | None = None
    """What the server says of it."""
    placed: dict[str, Path] = field(default_factory=dict)
    """Where its deliverables were copied to, by their paths."""
    directory: Path | None = None
    """Below which they are."""

    def __post_init__(self) -> None:
        self.progress = Progress(self.name)

    def body(self, inputs: str | None) -> dict[str, Any]:
        document = self.task.model_dump(mode="json", exclude_defaults=True, exclude={"inputs", "matrix"})
        body = {"task": document, "name": self.name, "group": self.group, "inputs": inputs}
        return {name: value for name, value in body.items() if value is not None}


def without_scenarios(files: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Task files, and the scenarios that came with them, as `tasks/*.yaml` names both.

    Raises `CliError` where there is nothing but scenarios.
    """
    scenarios = [path for path in files if path.stem.endswith(".script")]
    tasks = [path for path in files if path not in scenarios]
    if scenarios and not tasks:
        first = scenarios[0]
        task = first.with_name(first.name.replace(".script.", "."))
        hint = f"name the task that uses it: {task}" if task.is_file() else "name the task that uses it"
        raise CliError(f"{first} is a scripted-model file, not a task", hint=hint)
    return tasks, scenarios


def note_of(scenarios: Sequence[Path]) -> str:
    """Name the skipped files, one a line."""
    return "".join(f"skipped {plain(str(path))}: scripted-model file, not a task\n" for path in scenarios)


def check_agent(agent: str | None, presets: Collection[str] | None) -> None:
    """Raise `UsageProblem` for an agent that nobody knows, with the name that may have been meant."""
    from paddock.config.yamls import nearest

    if agent is None or presets is None or agent in presets:
        return
    # `cluade` is too far from `claude-code` as a whole, and near to its first word.
    firsts = {name.partition("-")[0]: name for name in presets}
    near = nearest(agent, presets) or firsts.get(nearest(agent, firsts) or "")
    meant = f"did you mean {near}? " if near else ""
    raise UsageProblem(f"--agent {agent[:80]!r} is not known; {meant}There are: {', '.join(sorted(presets))}")


def plan(files: Sequence[Path], changes: dict[str, Any], presets: Collection[str] | None = None) -> list[Job]:
    """The runs of some task files. Raises `CliError` with all that is wrong, before anything is started."""
    from paddock.errors import PaddockError
    from paddock.runs.matrix import expand
    from paddock.runs.taskfile import load_task

    jobs: list[Job] = []
    wrong: list[str] = []
    for path in files:
        try:
            loaded = load_task(path, presets=presets)
            task = changed(loaded.task, changes, presets)
            spread = expand(task)
            group = f"group-{secrets.token_hex(8)}" if len(spread) > 1 else None
            jobs += [Job(name, each, loaded, group) for name, each in spread]
        except UsageProblem:
            raise
        except PaddockError as error:
            wrong.append(error.message)
    if wrong:
        raise CliError("\n".join(wrong), hint="nothing was started")
    return jobs


def changed(task: Task, changes: dict[str, Any], presets: Collection[str] | None = None) -> Task:
    """A task with some of its fields set, as flags have them: `end.timeout` to `10m`."""
    from paddock.errors import InvalidInput
    from paddock.runs.taskfile import parse_document

    if not changes:
        return task
    document: dict[str, Any] = task.model_dump(mode="json", exclude_defaults=True, exclude={"inputs"})
    matrix = document.get("matrix") or {}
    for name, value in changes.items():
        if name.partition(".")[0] == "inputs":
            raise UsageProblem("--set cannot change inputs, which the file itself has to name")
        # A flag that says which one leaves nothing for the matrix to vary.
        matrix.pop({"agent": "agents", "llm.model": "models"}.get(name), None)
        _set(document, name, value)
    if not matrix and "matrix" not in changes:
        document.pop("matrix", None)
    try:
        return parse_document(document, presets=presets).model_copy(update={"inputs": task.inputs})
    except InvalidInput as error:
        raise UsageProblem(f"with what --set, --model and --agent say: {error.message}") from None


def _set(document: dict[str, Any], name: str, value: Any) -> None:
    *way, last = name.split(".")
    place = document
    for part in way:
        inner = place.setdefault(part, {})
        if not isinstance(inner, dict):
            raise UsageProblem(f"--set {name}: {part} has no fields of its own")
        place = inner
    place[last] = value


def parse_changes(settings: Sequence[str], model: str | None, agent: str | None) -> dict[str, Any]:
    """What `--model`, `--agent` and `--set` ask for, by field."""
    import yaml

    changes: dict[str, Any] = {}
    for text in settings:
        name, sign, value = text.partition("=")
        if not sign or not all(name.split(".")):
            raise UsageProblem(f"--set {text!r}: write FIELD=VALUE, as in --set end.timeout=10m")
        try:
            changes[name] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise UsageProblem(f"--set {text!r}: the value cannot be read; put it in quotes") from None
    if model is not None:
        changes["llm.model"] = model
    if agent is not None:
        changes["agent"] = agent
    return changes
