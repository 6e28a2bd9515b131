"""Reads task files, with complaints that name the file, the line, the field and what to write instead."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from paddock.config.walk import annotation_at, section, unit_of
from paddock.config.yamls import advice, place, read_text, read_tree, unknown
from paddock.errors import ConfigError, InvalidInput, NotFound
from paddock.llm.script.load import LARGEST as LARGEST_SCRIPT
from paddock.llm.script.load import parse_scenario
from paddock.model.task import Conflicts, Input, Location, Task
from paddock.model.words import one_or_more
from paddock.runs.inputs import examine, find
from paddock.runs.matrix import expand
from paddock.runs.presets import PLAIN, Presets, Unfit, check_fit
from paddock.runs.problems import Problem, TaskError, problems_of
from paddock.runs.schema import SHORT_FORMS

LARGEST = 2**20
"""Bytes of a task file."""
LARGEST_GOAL = 2**20
Agents = Presets | Collection[str] | None
SUFFIXES = (".yaml", ".yml", ".json")
_MOST_PROBLEMS = 20
_PLACEHOLDER = "-"
"""Stands for what could not be read, which has been complained of once already."""


@dataclass(frozen=True)
class Loaded:
    """A task file that has been read and checked. The files it names as goal and script are in the task now."""

    task: Task
    directory: Path
    """What the sources of inputs are relative to."""
    path: Path
    root: Path
    """What inputs may be taken from."""

    @property
    def sent(self) -> Task:
        """The task as a server is given it, with what `pack_inputs` packs beside it."""
        return self.task.model_copy(update={"inputs": ()})


def project_of(path: Path) -> Path:
    """The directory that a task file may name files of: its own, or the one that `tasks/` is in, if it is in there."""
    directory = path.absolute().parent
    return next((above.parent for above in (directory, *directory.parents) if above.name == "tasks"), directory)


def load_task(path: Path, *, presets: Agents = None, root: Path | None = None) -> Loaded:
    """Read a task file. Raises `TaskError` with all that is wrong with it.

    `presets` are the agents there are, or their names, where that is known. Files are taken from `root` alone, which
    is the task's project unless something else is given.
    """
    file = str(path)
    try:
        text = read_text(path, LARGEST)
        tree, data = read_tree(text, path)
    except ConfigError as error:
        raise TaskError(problems_of(error, file)) from error
    if not isinstance(data, dict):
        lack = "is empty" if data is None else "is no mapping"
        raise TaskError([Problem(file, 1, "", f"{lack}; a task begins with 'name: NAME'; see: paddock task new")])
    data.pop("$schema", None)  # Editors of JSON find the schema by it.
    reader = _Reader(path, tree, (root or project_of(path)).resolve(), presets)
    task = reader.task(data)
    if task is None or reader.problems:
        raise TaskError(reader.sorted())
    return Loaded(task, reader.directory, path, reader.root)


def task_files(directory: Path) -> list[Path]:
    """Task files of a directory, in order, without scripted-model files."""
    return [path for path in _yaml_files(directory) if not path.stem.endswith(".script")]


def script_files(directory: Path) -> list[Path]:
    """Scripted-model files of a directory, called `NAME.script.yaml`, in order."""
    return [path for path in _yaml_files(directory) if path.stem.endswith(".script")]


def _yaml_files(directory: Path) -> list[Path]:
    if not directory.is_dir():
        return []
    found = (path for path in directory.iterdir() if path.suffix in SUFFIXES and not path.name.startswith("."))
    return sorted(path for path in found if path.is_file())


def name_of(path: Path) -> str | None:
    """What a task file calls its task, whether it is valid or not."""
    try:
        _, data = read_tree(read_text(path, LARGEST), path)
    except ConfigError:
        return None
    name = data.get("name") if isinstance(data, dict) else None
    return name if isinstance(name, str) else None


def parse_document(data: Mapping[str, Any], *, presets: Agents = None) -> Task:
    """A task from a request. Raises `InvalidInput` naming fields.

    Only a bundle can carry files, so nothing here names one: the goal and the script are texts.
    """
    if not isinstance(data, Mapping):
        raise InvalidInput("a task is an object with 'name', 'goal' and 'agent' or 'entrypoint'")
    found: list[tuple[Location, str]] = []
    if isinstance(data.get("goal"), Mapping):
        found.append((("goal",), "must be the text itself; only a task file can name another file"))
        data = {**data, "goal": _PLACEHOLDER}
    task, wrong = _validated(dict(data))
    found += wrong
    for i, given in enumerate(_inputs(data)):
        if isinstance(given, str) or (isinstance(given, Mapping) and (given.get("source") or given.get("git"))):
            found.append(
                (("inputs", i), "names a file, which a request cannot carry; upload a bundle, or use 'content'")
            )
    found += [*_wrong_agents(data, presets), *_unfit(task, presets)]
    if task is not None and task.llm.script is not None:
        try:
            parse_scenario(task.llm.script, Path("llm.script"))
        except ConfigError as error:
            found += [
                (("llm", "script"), f"line {each.line or 1}: {each.message}")
                for each in problems_of(error, "llm.script")
            ]
    if found or task is None:
        shown = list(dict.fromkeys(f"{'.'.join(map(str, way)) or 'the task'}: {message}" for way, message in found))
        raise InvalidInput("; ".join(shown[:_MOST_PROBLEMS]))
    return task


class _Reader:
    """Goes through one task file and gathers all that is wrong with it."""

    def __init__(self, path: Path, tree: yaml.Node | None, root: Path, presets: Agents) -> None:
        self.path = path
        self.directory = path.absolute().parent
        self.tree = tree
        self.root = root
        self.presets = presets
        self.problems: list[Problem] = []

    def task(self, data: dict[str, Any]) -> Task | None:
        data = self._with_script(self._with_goal(data))
        task, wrong = _validated(data)
        for way, message in [*wrong, *_wrong_agents(data, self.presets), *_unfit(task, self.presets)]:
            self._complain(way, message)
        inputs: dict[int, Input] = {}
        for i, given in enumerate(_inputs(data)):
            try:
                inputs[i] = Input.model_validate(given)
            except ValidationError:  # It has been complained of with the rest.
                continue
        for i, message in examine(inputs, self.directory, self.root):
            self._complain(("inputs", i), message)
        return task

    def sorted(self) -> list[Problem]:
        """In the order of the file, what is wrong with other files last."""
        own = str(self.path)
        ordered = sorted(dict.fromkeys(self.problems), key=lambda each: (each.file != own, each.file, each.line or 0))
        left = len(ordered) - _MOST_PROBLEMS
        return ordered[:_MOST_PROBLEMS] + ([Problem(own, None, "", f"and {left} more")] if left > 0 else [])

    def _with_goal(self, data: dict[str, Any]) -> dict[str, Any]:
        goal = data.get("goal")
        if not isinstance(goal, dict):
            return data
        others = [name for name in goal if name != "file"]
        if others:
            self._complain(("goal", others[0]), "no such field; write the goal as text, or as 'file: PATH'")
        elif not isinstance(goal.get("file"), str):
            self._complain(("goal", "file"), "must be the path of a file with the goal")
        elif (text := self._text(("goal", "file"), goal["file"], LARGEST_GOAL)) is not None:
            if text.strip():
                return {**data, "goal": text}
            self._complain(("goal", "file"), f"{goal['file']!r} is empty; write the goal into it")
        return {**data, "goal": _PLACEHOLDER}

    def _with_script(self, data: dict[str, Any]) -> dict[str, Any]:
        llm = data.get("llm")
        if not isinstance(llm, dict) or not isinstance(llm.get("script"), str):
            return data
        text = self._text(("llm", "script"), llm["script"], LARGEST_SCRIPT)
        if text is not None:
            script = self.path.parent / llm["script"]
            try:
                parse_scenario(text, script)
            except ConfigError as error:
                self.problems += problems_of(error, str(script))
        return {**data, "llm": {**llm, "script": text or _PLACEHOLDER}}

    def _text(self, way: Location, named: str, largest: int) -> str | None:
        found = find(named, self.directory, self.root)
        if isinstance(found, str):
            self._complain(way, found)
            return None
        try:
            return read_text(found, largest)
        except ConfigError as error:
            for problem in problems_of(error, str(found)):
                self._complain(way, f"{named!r} {problem.message}")
            return None

    def _complain(self, way: Location, message: str) -> None:
        line, written = place(self.tree, way)
        self.problems.append(Problem(str(self.path), line, ".".join(map(str, written)), message))


def _validated(data: dict[str, Any]) -> tuple[Task | None, list[tuple[Location, str]]]:
    try:
        return Task.model_validate(data), []
    except ValidationError as error:
        found: list[tuple[Location, str]] = []
        for detail in error.errors(include_url=False):
            cause = detail.get("ctx", {}).get("error")
            found += cause.problems if isinstance(cause, Conflicts) else [(detail["loc"], _advice(dict(detail)))]
        return None, list(dict.fromkeys(found))


def _advice(detail: dict[str, Any]) -> str:
    *above, last = detail["loc"] or ("",)
    model = section(annotation_at(tuple(str(part) for part in above), Task))
    if detail["type"] == "extra_forbidden":
        return unknown(last, list(model.model_fields if model else ()))
    if detail["type"] == "model_type":
        whole = section(annotation_at(tuple(str(part) for part in detail["loc"]), Task))
        _, words = SHORT_FORMS.get(whole, ({}, "")) if whole else ({}, "")
        return advice(detail).replace("must be", f"must be {words} or", 1) if words else advice(detail)
    field = model.model_fields.get(str(last)) if model else None
    return advice(detail, unit_of(field) if field else None)


def _inputs(data: Mapping[str, Any]) -> list[Any]:
    given = one_or_more(data.get("inputs"))
    return given if isinstance(given, list) else []


def _wrong_agents(data: Mapping[str, Any], presets: Agents) -> list[tuple[Location, str]]:
    if presets is None:
        return []
    matrix = data.get("matrix")
    several = one_or_more(matrix.get("agents")) if isinstance(matrix, Mapping) else None
    named: list[tuple[Location, Any]] = [(("agent",), data.get("agent"))]
    named += [(("matrix", "agents", i), name) for i, name in enumerate(several if isinstance(several, list) else [])]
    known = presets.names() if isinstance(presets, Presets) else sorted(presets)
    found: list[tuple[Location, str]] = []
    for way, name in named:
        if not isinstance(name, str):
            continue
        if name not in known:
            lack = presets.lack(name) if isinstance(presets, Presets) else unknown(name, known, "preset")
            found.append((way, lack if isinstance(presets, Presets) else f"{name[:80]!r}: {lack}"))
        elif isinstance(presets, Presets):
            try:
                if presets.get(name).command is None and data.get("entrypoint") is None:
                    found.append((way, f"'{name}' has no command of its own; add an 'entrypoint'"))
            except ConfigError as error:
                found.append((way, f"the preset '{name}' is not valid: {error.message.splitlines()[0]}"))
    return found


def _unfit(task: Task | None, presets: Agents) -> list[tuple[Location, str]]:
    """What the agents of a task cannot be given, but for what has been found wrong with the agents themselves."""
    if task is None or not isinstance(presets, Presets):
        return []
    found: list[tuple[Location, str]] = []
    places = {server.name: i for i, server in enumerate(task.mcp)}
    for _, each in expand(task):
        try:
            check_fit(presets.get(each.agent or PLAIN), each)
        except Unfit as error:
            first, *rest = error.way or ("",)
            if first == "mcp":
                found.append((("mcp", places[str(rest[0])]), error.said))
            elif first != "entrypoint":
                found.append((error.way, error.said))
        except (NotFound, ConfigError):
            continue
    return list(dict.fromkeys(found))
