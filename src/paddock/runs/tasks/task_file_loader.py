"""Load task files; errors name the file, the line, the field and the fix."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from paddock.config.schema_lookup import annotation_of_setting, section_type, unit_of_field
from paddock.config.yaml_files import (
    explain_validation_error,
    locate_field,
    parse_yaml,
    read_text_file,
    unknown_name_message,
)
from paddock.errors import ConfigError, InvalidInput, NotFound
from paddock.llm.scripted_model.script_loader import MAX_SCRIPT_BYTES, parse_script
from paddock.model.task import FieldPath, Task, TaskConflicts, TaskInput
from paddock.model.task_fields import wrap_in_list
from paddock.runs.inputs.input_packer import find_input_problems, resolve_input_path
from paddock.runs.presets import SCRIPT_PRESET, PresetLibrary, UnsupportedTaskError, check_agent_supports_task
from paddock.runs.tasks.matrix_expansion import expand_task_matrix
from paddock.runs.tasks.script_check import find_script_problems
from paddock.runs.tasks.task_problems import InvalidTaskError, TaskProblem, task_problems_from_error
from paddock.runs.tasks.task_schema import SHORT_FORMS

MAX_TASK_FILE_BYTES = 2**20
"""Maximum bytes of a task file."""
MAX_GOAL_BYTES = 2**20
KnownAgents = PresetLibrary | Collection[str] | None
TASK_FILE_SUFFIXES = (".yaml", ".yml", ".json")
_MAX_PROBLEMS = 20
_UNREADABLE_TEXT = "-"
"""Stand-in for an unreadable text that is already reported."""


@dataclass(frozen=True)
class LoadedTask:
    """Loaded and validated task file, with goal and script files inlined."""

    task: Task
    directory: Path
    """Base directory of input sources."""
    path: Path
    root: Path
    """Directory that inputs may come from."""

    @property
    def self_contained_task(self) -> Task:
        """Return the task for a server, without the inputs that `pack_inputs` packs separately."""
        return self.task.model_copy(update={"inputs": ()})


def task_project_root(path: Path) -> Path:
    """Return the directory of files that a task may use: its own, or the parent of `tasks/`."""
    directory = path.absolute().parent
    return next((above.parent for above in (directory, *directory.parents) if above.name == "tasks"), directory)


def load_task_file(path: Path, *, presets: KnownAgents = None, root: Path | None = None) -> LoadedTask:
    """Load a task file. Raises `InvalidTaskError` with all problems.

    `presets` are the known agents or their names. Files must be below `root`, which
    defaults to the task's project.
    """
    file = str(path)
    try:
        text = read_text_file(path, MAX_TASK_FILE_BYTES)
        tree, data = parse_yaml(text, path)
    except ConfigError as error:
        raise InvalidTaskError(task_problems_from_error(error, file)) from error
    if not isinstance(data, dict):
        problem = "is empty" if data is None else "is no mapping"
        raise InvalidTaskError(
            [TaskProblem(file, 1, "", f"{problem}; a task begins with 'name: NAME'; see: paddock task new")]
        )
    data.pop("$schema", None)  # Used by JSON editors to find the schema.
    reader = _TaskFileReader(path, tree, (root or task_project_root(path)).resolve(), presets)
    task = reader.read_task(data)
    if task is None or reader.problems:
        raise InvalidTaskError(reader.sorted_problems())
    return LoadedTask(task, reader.directory, path, reader.root)


def list_task_files(directory: Path) -> list[Path]:
    """Return the sorted task files of a directory, without scripted-model files."""
    return [path for path in _yaml_files(directory) if not path.stem.endswith(".script")]


def list_script_files(directory: Path) -> list[Path]:
    """Return the sorted scripted-model files `NAME.script.yaml` of a directory."""
    return [path for path in _yaml_files(directory) if path.stem.endswith(".script")]


def _yaml_files(directory: Path) -> list[Path]:
    if not directory.is_dir():
        return []
    found = (
        path for path in directory.iterdir() if path.suffix in TASK_FILE_SUFFIXES and not path.name.startswith(".")
    )
    return sorted(path for path in found if path.is_file())


def read_task_name(path: Path) -> str | None:
    """Return the task name in a file, also of an invalid one."""
    try:
        _, data = parse_yaml(read_text_file(path, MAX_TASK_FILE_BYTES), path)
    except ConfigError:
        return None
    name = data.get("name") if isinstance(data, dict) else None
    return name if isinstance(name, str) else None


def parse_task_document(data: Mapping[str, Any], *, presets: KnownAgents = None) -> Task:
    """Parse a task of an API request. Raises `InvalidInput` naming fields.

    Files come in a bundle, so goal and script must be texts.
    """
    if not isinstance(data, Mapping):
        raise InvalidInput("a task must be an object with 'name', 'goal' and 'agent' or 'entrypoint'")
    found: list[tuple[FieldPath, str]] = []
    if isinstance(data.get("goal"), Mapping):
        found.append((("goal",), "must be the text itself; only a task file can name another file"))
        data = {**data, "goal": _UNREADABLE_TEXT}
    task, wrong = _validate_task(dict(data))
    found += wrong
    for i, given in enumerate(_parse_inputs(data)):
        if isinstance(given, str) or (isinstance(given, Mapping) and (given.get("source") or given.get("git"))):
            found.append(
                (("inputs", i), "names a file, which a request cannot carry; upload a bundle, or use 'content'")
            )
    found += [*_find_unknown_agents(data, presets), *_find_unfit_agents(task, presets)]
    if task is not None and task.llm.script is not None:
        found += [(("llm", "script"), message) for message in find_script_problems(task.llm.script)]
    if found or task is None:
        shown = list(
            dict.fromkeys(f"{'.'.join(map(str, field_path)) or 'the task'}: {message}" for field_path, message in found)
        )
        raise InvalidInput("; ".join(shown[:_MAX_PROBLEMS]))
    return task


class _TaskFileReader:
    """Reader of one task file that collects all problems."""

    def __init__(self, path: Path, tree: yaml.Node | None, root: Path, presets: KnownAgents) -> None:
        self.path = path
        self.directory = path.absolute().parent
        self.tree = tree
        self.root = root
        self.presets = presets
        self.problems: list[TaskProblem] = []

    def read_task(self, data: dict[str, Any]) -> Task | None:
        data = self._read_script_file(self._read_goal_file(data))
        task, wrong = _validate_task(data)
        for field_path, message in [
            *wrong,
            *_find_unknown_agents(data, self.presets),
            *_find_unfit_agents(task, self.presets),
        ]:
            self._add_problem(field_path, message)
        inputs: dict[int, TaskInput] = {}
        for i, given in enumerate(_parse_inputs(data)):
            try:
                inputs[i] = TaskInput.model_validate(given)
            except ValidationError:  # Already reported.
                continue
        for i, message in find_input_problems(inputs, self.directory, self.root):
            self._add_problem(("inputs", i), message)
        return task

    def sorted_problems(self) -> list[TaskProblem]:
        """Return problems in file order; problems of other files last."""
        own = str(self.path)
        ordered = sorted(dict.fromkeys(self.problems), key=lambda each: (each.file != own, each.file, each.line or 0))
        left = len(ordered) - _MAX_PROBLEMS
        return ordered[:_MAX_PROBLEMS] + ([TaskProblem(own, None, "", f"and {left} more")] if left > 0 else [])

    def _read_goal_file(self, data: dict[str, Any]) -> dict[str, Any]:
        goal = data.get("goal")
        if not isinstance(goal, dict):
            return data
        others = [name for name in goal if name != "file"]
        if others:
            self._add_problem(("goal", others[0]), "no such field; write the goal as text, or as 'file: PATH'")
        elif not isinstance(goal.get("file"), str):
            self._add_problem(("goal", "file"), "must be the path of a file with the goal")
        elif (text := self._read_text_file(("goal", "file"), goal["file"], MAX_GOAL_BYTES)) is not None:
            if text.strip():
                return {**data, "goal": text}
            self._add_problem(("goal", "file"), f"{goal['file']!r} is empty; write the goal into it")
        return {**data, "goal": _UNREADABLE_TEXT}

    def _read_script_file(self, data: dict[str, Any]) -> dict[str, Any]:
        llm = data.get("llm")
        if not isinstance(llm, dict) or not isinstance(llm.get("script"), str):
            return data
        text = self._read_text_file(("llm", "script"), llm["script"], MAX_SCRIPT_BYTES)
        if text is not None:
            script = self.path.parent / llm["script"]
            try:
                parse_script(text, script)
            except ConfigError as error:
                self.problems += task_problems_from_error(error, str(script))
        return {**data, "llm": {**llm, "script": text or _UNREADABLE_TEXT}}

    def _read_text_file(self, field_path: FieldPath, named: str, largest: int) -> str | None:
        found = resolve_input_path(named, self.directory, self.root)
        if isinstance(found, str):
            self._add_problem(field_path, found)
            return None
        try:
            return read_text_file(found, largest)
        except ConfigError as error:
            for problem in task_problems_from_error(error, str(found)):
                self._add_problem(field_path, f"{named!r} {problem.message}")
            return None

    def _add_problem(self, field_path: FieldPath, message: str) -> None:
        line, written = locate_field(self.tree, field_path)
        self.problems.append(TaskProblem(str(self.path), line, ".".join(map(str, written)), message))


def _validate_task(data: dict[str, Any]) -> tuple[Task | None, list[tuple[FieldPath, str]]]:
    try:
        return Task.model_validate(data), []
    except ValidationError as error:
        found: list[tuple[FieldPath, str]] = []
        for detail in error.errors(include_url=False):
            cause = detail.get("ctx", {}).get("error")
            found += cause.problems if isinstance(cause, TaskConflicts) else [(detail["loc"], _advise(dict(detail)))]
        return None, list(dict.fromkeys(found))


def _advise(detail: dict[str, Any]) -> str:
    *above, last = detail["loc"] or ("",)
    model = section_type(annotation_of_setting(tuple(str(part) for part in above), Task))
    if detail["type"] == "extra_forbidden":
        return unknown_name_message(last, list(model.model_fields if model else ()))
    if detail["type"] == "model_type":
        whole = section_type(annotation_of_setting(tuple(str(part) for part in detail["loc"]), Task))
        _, words = SHORT_FORMS.get(whole, ({}, "")) if whole else ({}, "")
        return (
            explain_validation_error(detail).replace("must be", f"must be {words} or", 1)
            if words
            else explain_validation_error(detail)
        )
    field = model.model_fields.get(str(last)) if model else None
    return explain_validation_error(detail, unit_of_field(field) if field else None)


def _parse_inputs(data: Mapping[str, Any]) -> list[Any]:
    given = wrap_in_list(data.get("inputs"))
    return given if isinstance(given, list) else []


def _find_unknown_agents(data: Mapping[str, Any], presets: KnownAgents) -> list[tuple[FieldPath, str]]:
    if presets is None:
        return []
    matrix = data.get("matrix")
    agents = wrap_in_list(matrix.get("agents")) if isinstance(matrix, Mapping) else None
    named: list[tuple[FieldPath, Any]] = [(("agent",), data.get("agent"))]
    named += [(("matrix", "agents", i), name) for i, name in enumerate(agents if isinstance(agents, list) else [])]
    known = presets.names() if isinstance(presets, PresetLibrary) else sorted(presets)
    found: list[tuple[FieldPath, str]] = []
    for field_path, name in named:
        if not isinstance(name, str):
            continue
        if name not in known:
            problem = (
                presets.unknown_name_message(name)
                if isinstance(presets, PresetLibrary)
                else unknown_name_message(name, known, "preset")
            )
            found.append((field_path, problem if isinstance(presets, PresetLibrary) else f"{name[:80]!r}: {problem}"))
        elif isinstance(presets, PresetLibrary):
            try:
                if presets.get(name).command is None and data.get("entrypoint") is None:
                    found.append((field_path, f"'{name}' has no command of its own; add an 'entrypoint'"))
            except ConfigError as error:
                found.append((field_path, f"the preset '{name}' is not valid: {error.message.splitlines()[0]}"))
    return found


def _find_unfit_agents(task: Task | None, presets: KnownAgents) -> list[tuple[FieldPath, str]]:
    """Return what the agents of a task do not support, except problems of the agents themselves."""
    if task is None or not isinstance(presets, PresetLibrary):
        return []
    found: list[tuple[FieldPath, str]] = []
    indexes = {server.name: i for i, server in enumerate(task.mcp)}
    for _, each in expand_task_matrix(task):
        try:
            check_agent_supports_task(presets.get(each.agent or SCRIPT_PRESET), each)
        except UnsupportedTaskError as error:
            first, *rest = error.field_path or ("",)
            if first == "mcp":
                found.append((("mcp", indexes[str(rest[0])]), error.detail))
            elif first != "entrypoint":
                found.append((error.field_path, error.detail))
        except (NotFound, ConfigError):
            continue
    return list(dict.fromkeys(found))
