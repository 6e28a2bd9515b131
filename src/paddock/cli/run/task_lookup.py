"""Finds task files by path, task name or file name; samples that ship with Paddock need no file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from paddock.cli.framework.context import CliContext
from paddock.cli.output.errors import CliError

TASKS_DIRECTORY = Path("tasks")


def task_directories(cli: CliContext) -> list[Path]:
    """Return `./tasks` and the directory of `runs.tasks`."""
    configured = cli.load_config({}, only=["runs.tasks"]).config.runs.tasks
    return [
        TASKS_DIRECTORY,
        *([configured] if configured is not None and configured.resolve() != TASKS_DIRECTORY.resolve() else []),
    ]


def list_user_task_files(cli: CliContext) -> list[Path]:
    from paddock.runs.tasks.task_file_loader import list_task_files

    return [path for directory in task_directories(cli) for path in list_task_files(directory)]


def list_sample_task_files(own: Sequence[Path]) -> list[Path]:
    """Return the samples that ship with Paddock, except names of the user's own files."""
    from paddock.runs.tasks.task_templates import task_template_files

    hidden = {path.stem for path in own}
    return [path for name, path in task_template_files().items() if name not in hidden]


def find_task_files(cli: CliContext, files: Sequence[Path]) -> list[Path]:
    """Return the files of paths and names. Raises `CliError` for a name without a task."""
    return [path if path.exists() else find_task_file(cli, str(path)) for path in files]


def find_task_file(cli: CliContext, name: str) -> Path:
    """Return the file of a path, a task name, a file name or a sample's name."""
    from paddock.cli.sandbox.sandbox_lookup import AmbiguousName
    from paddock.config.yaml_files import closest_name
    from paddock.runs.tasks.task_file_loader import TASK_FILE_SUFFIXES, read_task_name
    from paddock.runs.tasks.task_templates import task_template_files

    samples = task_template_files()
    if "/" in name or name.endswith(TASK_FILE_SUFFIXES):
        path = Path(name)
        if path.stem in samples and not path.exists():
            raise CliError(f"there is no file {name}", hint=f"run the sample of that name: paddock run {path.stem}")
        return path
    files = {path: read_task_name(path) for path in list_user_task_files(cli)}
    found = [path for path, own in files.items() if own == name] or [path for path in files if path.stem == name]
    if len(found) > 1:
        raise AmbiguousName(f"{name} is the name of {', '.join(map(str, found))}", hint="give the file instead")
    if found:
        return found[0]
    if name in samples:
        return samples[name]
    near = closest_name(name, [*(own for own in files.values() if own), *samples])
    hint = f"did you mean {near}?" if near else "list tasks: paddock task list"
    raise CliError(f"there is no task {name}", hint=hint)
