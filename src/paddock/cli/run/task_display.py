"""Formats task files and their problems for `paddock task`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.cli.output.errors import supports_colour
from paddock.cli.output.formatting import format_size, sanitize_text

if TYPE_CHECKING:
    from paddock.model.task import Task, TaskInput
    from paddock.runs.presets import PresetLibrary
    from paddock.runs.tasks.task_file_loader import LoadedTask
    from paddock.runs.tasks.task_problems import InvalidTaskError, TaskProblem

_INDENT = " " * 9


def print_task_problems(path: Path, problems: tuple[TaskProblem, ...]) -> None:
    """Print a file's problems: one per line like a compiler, or below the file's lines on a terminal."""
    if not supports_colour(sys.stdout):
        for problem in problems:
            sys.stdout.write(f"{sanitize_text(str(problem))}\n")
        return
    import shutil
    import textwrap

    width = max(40, shutil.get_terminal_size().columns - 1)
    sys.stdout.write(f"\x1b[31m✗\x1b[0m {sanitize_text(str(path))}\n")
    before: tuple[str, int | None] = (str(path), None)
    for problem in problems:
        if (problem.file, problem.line) != before and problem.line is not None:
            other = "" if problem.file == str(path) else f"{problem.file}: "
            shown = sanitize_text(f"{problem.line:>6} │ {other}{read_problem_line(problem)}")
            sys.stdout.write(f"\x1b[2m{shown[:width]}\x1b[0m\n")
        before = (problem.file, problem.line)
        field = f"{problem.field}: " if problem.field else ""
        text = textwrap.fill(
            sanitize_text(f"{field}{problem.message}"), width, initial_indent=_INDENT, subsequent_indent=_INDENT
        )
        start = len(_INDENT) + len(sanitize_text(field))
        sys.stdout.write(f"\x1b[1m{text[:start]}\x1b[0m{text[start:]}\n")


def read_problem_line(problem: TaskProblem) -> str:
    """Return the line of the file that a problem is about."""
    try:
        with open(problem.file, encoding="utf-8", errors="replace") as file:
            return next((text for i, text in enumerate(file, 1) if i == problem.line), "").rstrip()
    except OSError:
        return ""


def task_file_report(path: Path, result: LoadedTask | InvalidTaskError) -> dict[str, Any]:
    from paddock.runs.tasks.task_problems import InvalidTaskError

    if isinstance(result, InvalidTaskError):
        problems = [asdict(problem) for problem in result.problems]
        return {"file": str(path), "valid": False, "problems": problems}
    return {"file": str(path), "valid": True, "name": result.task.name}


def task_report(task: Task, presets: PresetLibrary) -> dict[str, Any]:
    return {
        "name": task.name,
        "description": task.description,
        "agents": list(task.matrix.agents)
        if task.matrix and task.matrix.agents
        else [task.agent]
        if task.agent
        else [],
        "model": task_model_names(task, presets) or None,
        "deliverables": [each.path for each in task.deliverables],
    }


def task_agent_names(task: Task) -> list[str]:
    several = task.matrix.agents if task.matrix else ()
    return list(several) or ([task.agent] if task.agent else [])


def summarize_task(task: Task) -> str:
    from paddock.runs.tasks.matrix_expansion import expand_task_matrix

    runs = len(expand_task_matrix(task))
    parts = [
        ", ".join(task_agent_names(task)) or "own program",
        format_quantity(len(task.inputs), "input"),
        format_quantity(len(task.deliverables), "deliverable"),
        format_quantity(len(task.verify), "check"),
        format_quantity(runs, "run") if runs > 1 else "",
    ]
    return f"{task.name}: {', '.join(part for part in parts if part)}"


def format_quantity(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}" if number else ""


def task_model_names(task: Task, presets: PresetLibrary) -> str:
    """Return the task's models, or else the default of its agent preset."""
    if task.matrix and task.matrix.models:
        return ", ".join(task.matrix.models)
    if task.llm.model or task.agent is None:
        return task.llm.model or ""
    return presets.get(task.agent).model or ""


def task_image_name(task: Task, presets: PresetLibrary) -> str:
    return presets.get(task.agent).image or "" if task.agent else ""


def format_task_input(each: TaskInput) -> str:
    to = f" → {workspace_relative_path(each.target)}" if each.target else ""
    if each.content is not None:
        return f"{format_size(len(each.content.encode()))} of text{to}"
    return f"{each.source or f'git {each.git}'}{f' at {each.ref}' if each.ref else ''}{to}"


def deliverable_text(path: str, required: bool) -> str:
    return workspace_relative_path(path) + ("" if required else "  (optional)")


def workspace_relative_path(path: str) -> str:
    """Return a sandbox path relative to the workspace."""
    from paddock.model.task import WORKSPACE

    return path.removeprefix(f"{WORKSPACE}/")
