"""Turns task files into runs: loads them, applies command-line changes and expands their matrix."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.cli.framework.option_parsing import join_rules
from paddock.cli.output.errors import CliError, UsageError
from paddock.cli.output.formatting import sanitize_text
from paddock.cli.run.run_progress import RunProgressState

if TYPE_CHECKING:
    from paddock.model.task import Task
    from paddock.runs.tasks.task_file_loader import LoadedTask


@dataclass
class PlannedRun:
    """One planned run."""

    name: str
    task: Task
    task_file: LoadedTask
    """The loaded task file, which also names the inputs."""
    group: str | None
    idempotency_key: str = field(default_factory=lambda: secrets.token_hex(16))
    """Idempotency key, so that a repeated request creates no second run."""
    run: dict[str, Any] | None = None
    """The run as returned by the server."""
    copied_files: dict[str, Path] = field(default_factory=dict)
    """Local copies of deliverables, by deliverable path."""
    directory: Path | None = None
    """Directory of the local copies."""

    def __post_init__(self) -> None:
        self.progress = RunProgressState(self.name)

    def request_body(self, inputs: str | None) -> dict[str, Any]:
        document = self.task.model_dump(mode="json", exclude_defaults=True, exclude={"inputs", "matrix"})
        body = {"task": document, "name": self.name, "group": self.group, "inputs": inputs}
        return {name: value for name, value in body.items() if value is not None}


def separate_model_scripts(files: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Separate task files from scripted-model files, because `tasks/*.yaml` matches both.

    Raises `CliError` if there are only scripted-model files.
    """
    scripts = [path for path in files if path.stem.endswith(".script")]
    tasks = [path for path in files if path not in scripts]
    if scripts and not tasks:
        first = scripts[0]
        task = first.with_name(first.name.replace(".script.", "."))
        hint = f"run the task that uses it: {task}" if task.is_file() else "run the task that uses it"
        raise CliError(f"{first} is a scripted-model file, not a task", hint=hint)
    return tasks, scripts


def format_skipped_script_files(scripts: Sequence[Path]) -> str:
    """Return a line for each skipped file."""
    return "".join(f"skipped {sanitize_text(str(path))}: scripted-model file, not a task\n" for path in scripts)


def check_agent_preset(agent: str | None, presets: Collection[str] | None) -> None:
    """Raise `UsageError` for an unknown agent, suggesting a similar name."""
    from paddock.config.yaml_files import closest_name

    if agent is None or presets is None or agent in presets:
        return
    # `cluade` resembles `claude`, the first word of `claude-code`, but not the whole name.
    firsts = {name.partition("-")[0]: name for name in presets}
    similar = closest_name(agent, presets) or firsts.get(closest_name(agent, firsts) or "")
    suggestion = f"did you mean {similar}? " if similar else ""
    raise UsageError(f"--agent {agent[:80]!r} is unknown; {suggestion}known agents: {', '.join(sorted(presets))}")


def plan_runs(
    files: Sequence[Path], changes: dict[str, Any], presets: Collection[str] | None = None
) -> list[PlannedRun]:
    """Return the runs of task files. Raises `CliError` with all problems before anything is started."""
    from paddock.errors import PaddockError
    from paddock.runs.tasks.matrix_expansion import expand_task_matrix
    from paddock.runs.tasks.task_file_loader import load_task_file

    runs: list[PlannedRun] = []
    wrong: list[str] = []
    for path in files:
        try:
            loaded = load_task_file(path, presets=presets)
            task = apply_task_changes(loaded.task, changes, presets)
            spread = expand_task_matrix(task)
            group = f"group-{secrets.token_hex(8)}" if len(spread) > 1 else None
            runs += [PlannedRun(name, each, loaded, group) for name, each in spread]
        except UsageError:
            raise
        except PaddockError as error:
            wrong.append(error.message)
    if wrong:
        raise CliError("\n".join(wrong), hint="nothing was started")
    return runs


def apply_task_changes(task: Task, changes: dict[str, Any], presets: Collection[str] | None = None) -> Task:
    """Return a task with some fields replaced, such as `end.timeout` by `10m`."""
    from paddock.errors import InvalidInput
    from paddock.runs.tasks.task_file_loader import parse_task_document

    if not changes:
        return task
    document: dict[str, Any] = task.model_dump(mode="json", exclude_defaults=True, exclude={"inputs"})
    matrix = document.get("matrix") or {}
    for name, value in changes.items():
        if name.partition(".")[0] == "inputs":
            raise UsageError("--set cannot change inputs; change them in the task file")
        # An explicit agent or model replaces that dimension of the matrix.
        matrix.pop({"agent": "agents", "llm.model": "models"}.get(name), None)
        _set_field(document, name, value)
    if not matrix and "matrix" not in changes:
        document.pop("matrix", None)
    try:
        return parse_task_document(document, presets=presets).model_copy(update={"inputs": task.inputs})
    except InvalidInput as error:
        raise UsageError(f"after applying --set, --model, --agent and --network: {error.message}") from None


def _set_field(document: dict[str, Any], name: str, value: Any) -> None:
    *above, last = name.split(".")
    node = document
    for part in above:
        inner = node.setdefault(part, {})
        if not isinstance(inner, dict):
            raise UsageError(f"--set {name}: {part} has no fields of its own")
        node = inner
    node[last] = value


def parse_task_options(
    settings: Sequence[str], model: str | None, agent: str | None, network: Sequence[str] | None = None
) -> dict[str, Any]:
    """Return the changes of `--model`, `--agent`, `--network` and `--set` by field."""
    import yaml

    changes: dict[str, Any] = {}
    for text in settings:
        name, sign, value = text.partition("=")
        if not sign or not all(name.split(".")):
            raise UsageError(f"--set {text!r}: write FIELD=VALUE, for example --set end.timeout=10m")
        try:
            changes[name] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise UsageError(f"--set {text!r}: invalid YAML value; put it in quotes") from None
    if model is not None:
        changes["llm.model"] = model
    if agent is not None:
        changes["agent"] = agent
    if network:
        changes["network"] = join_rules(network)
    return changes
