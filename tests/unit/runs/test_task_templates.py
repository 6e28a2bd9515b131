"""Sample tasks that ship with Paddock."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

import pytest

from paddock.errors import NotFound
from paddock.runs.presets import PresetLibrary
from paddock.runs.tasks.task_file_loader import parse_task_document
from paddock.runs.tasks.task_templates import (
    SCRIPT_MODEL,
    TEMPLATE_NAMES,
    find_task_template,
    load_task_templates,
    task_template_directory,
    task_with_inline_inputs,
    task_with_script_model,
    user_task_files,
)

PRESETS = PresetLibrary()
ROOT = Path(__file__).parents[3]


def test_every_sample_can_be_sent_without_its_files() -> None:
    found = load_task_templates(PRESETS)
    assert len(found) == 10
    for loaded in found:
        task = task_with_inline_inputs(loaded)
        assert all(each.content is not None for each in task.inputs)
        document = task.model_dump(mode="json", exclude_defaults=True)
        assert parse_task_document(document, presets=PRESETS) == task


def test_a_sample_with_a_model_runs_on_its_script() -> None:
    assert task_with_script_model(find_task_template("hello", PRESETS).task).llm.model == SCRIPT_MODEL
    plain = find_task_template("hello-script", PRESETS).task
    assert task_with_script_model(plain) == plain


def test_an_unknown_sample_lists_the_names() -> None:
    with pytest.raises(NotFound, match="fix-bug, hello"):
        find_task_template("../hello", PRESETS)


def test_user_tasks_in_a_checkout_are_not_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "tasks", tmp_path / "tasks")
    (tmp_path / "tasks/mine.yaml").write_text("nmae: mine\n")
    monkeypatch.setattr("paddock.runs.tasks.task_templates.task_template_directory", lambda: tmp_path / "tasks")
    assert {loaded.path.stem for loaded in load_task_templates(PRESETS)} == set(TEMPLATE_NAMES)
    assert user_task_files() == [tmp_path / "tasks/mine.yaml"]
    with pytest.raises(NotFound):
        find_task_template("mine", PRESETS)


def test_the_wheel_carries_the_samples() -> None:
    assert task_template_directory() == ROOT / "tasks"
    included = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert included["force-include"]["tasks"] == "paddock/templates"
