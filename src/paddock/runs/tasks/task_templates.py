"""Sample tasks that ship with Paddock."""

from __future__ import annotations

from pathlib import Path

from paddock.errors import NotFound
from paddock.model.task import Task
from paddock.runs.inputs.input_packer import inline_input_files
from paddock.runs.presets import PresetLibrary
from paddock.runs.tasks.task_file_loader import LoadedTask, list_task_files, load_task_file

SCRIPT_MODEL = "script"
"""Model name that selects the task's script even if the server has the agent's model."""


TEMPLATE_NAMES = (
    "data-report",
    "fix-bug",
    "hello",
    "hello-codex",
    "hello-gemini-cli",
    "hello-opencode",
    "hello-qwen-agent",
    "hello-qwen-code",
    "hello-script",
    "order-list",
)
"""In a checkout, user tasks are beside the samples."""


def task_template_directory() -> Path:
    """Return the directory of sample tasks, in the checkout or the package."""
    package = Path(__file__).resolve().parents[2]
    checkout = package.parents[1]
    return checkout / "tasks" if (checkout / "pyproject.toml").is_file() else package / "templates"


def load_task_templates(presets: PresetLibrary) -> list[LoadedTask]:
    """Load all sample tasks, by file name. Raises `InvalidTaskError` for one that is not valid."""
    return [load_task_file(path, presets=presets) for path in task_template_files().values()]


def find_task_template(name: str, presets: PresetLibrary) -> LoadedTask:
    """Load a sample task by its name. Raises `NotFound`, which lists the names."""
    files = task_template_files()
    if name not in files:
        raise NotFound(f"there is no template {name[:80]!r}; there are: {', '.join(files)}")
    return load_task_file(files[name], presets=presets)


def user_task_files() -> list[Path]:
    """Return the user's task files beside the samples of a checkout."""
    samples = set(task_template_files().values())
    return [path for path in list_task_files(task_template_directory()) if path not in samples]


def task_template_files() -> dict[str, Path]:
    """Return the files of the sample tasks by name."""
    return {
        path.stem: path
        for path in list_task_files(task_template_directory())
        if path.suffix == ".yaml" and path.stem in TEMPLATE_NAMES
    }


def task_with_inline_inputs(loaded: LoadedTask) -> Task:
    """Return the task with input files inlined, for editing and sending."""
    return loaded.task.model_copy(update={"inputs": inline_input_files(loaded)})


def task_with_script_model(task: Task) -> Task:
    """Return the task with its script as the model. Without a script, return it unchanged."""
    if task.llm.script is None:
        return task
    return task.model_copy(update={"llm": task.llm.model_copy(update={"model": SCRIPT_MODEL})})
