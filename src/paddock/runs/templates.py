"""Sample tasks that ship with Paddock."""

from __future__ import annotations

from pathlib import Path

from paddock.errors import NotFound
from paddock.model.task import Task
from paddock.runs.inputs import contents
from paddock.runs.presets import Presets
from paddock.runs.taskfile import Loaded, load_task, task_files

SCRIPT_MODEL = "script"
"""The model name that asks for the task's own script even where the server has the agent's model."""


NAMES = (
    "data-report",
    "fix-bug",
    "hello",
    "hello-codex",
    "hello-gemini-cli",
    "hello-opencode",
    "hello-qwen-agent",
    "hello-qwen-code",
    "hello-script",
)
"""In a checkout, users keep tasks of their own beside the samples."""


def directory() -> Path:
    """Return the directory of the sample tasks: of the checkout, or of the installed package."""
    package = Path(__file__).resolve().parents[1]
    checkout = package.parents[1]
    return checkout / "tasks" if (checkout / "pyproject.toml").is_file() else package / "templates"


def templates(presets: Presets) -> list[Loaded]:
    """Load all sample tasks, by file name. Raises `TaskError` for one that is not valid."""
    return [load_task(path, presets=presets) for path in _samples().values()]


def find_template(name: str, presets: Presets) -> Loaded:
    """Load a sample task by its name. Raises `NotFound`, which lists the names."""
    files = _samples()
    if name not in files:
        raise NotFound(f"there is no template {name[:80]!r}; there are: {', '.join(files)}")
    return load_task(files[name], presets=presets)


def own_tasks() -> list[Path]:
    """Return the task files that a user keeps beside the samples of a checkout."""
    samples = set(_samples().values())
    return [path for path in task_files(directory()) if path not in samples]


def _samples() -> dict[str, Path]:
    return {path.stem: path for path in task_files(directory()) if path.suffix == ".yaml" and path.stem in NAMES}


def portable(loaded: Loaded) -> Task:
    """Return the task with its input files as texts, so that it can be edited and sent without the files."""
    return loaded.task.model_copy(update={"inputs": contents(loaded)})


def on_script(task: Task) -> Task:
    """Return the task answered by its script, whatever models the server has. Without a script it stays as it is."""
    if task.llm.script is None:
        return task
    return task.model_copy(update={"llm": task.llm.model_copy(update={"model": SCRIPT_MODEL})})
