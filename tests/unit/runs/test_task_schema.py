"""The schema and the reference of task files match the loader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml
from pydantic import BaseModel

from paddock.config.schema_lookup import annotation_of_setting, section_type
from paddock.model.mcp import McpSection, McpServer
from paddock.model.task import Task, TaskSection
from paddock.runs.tasks.task_file_loader import load_task_file
from paddock.runs.tasks.task_problems import InvalidTaskError
from paddock.runs.tasks.task_reference import render_task_reference
from paddock.runs.tasks.task_schema import task_json_schema, task_json_schema_text

PAGES = Path(__file__).parents[3] / "docs/reference"
BASE: dict[str, Any] = {"name": "demo", "goal": "Do it.", "agent": "codex"}
VALIDATOR = jsonschema_rs.validator_for(task_json_schema())
COMPANIONS: dict[str, dict[str, Any]] = {
    "mcp.name": {"url": "https://a/"},
    "mcp.url": {"name": "a"},
    **{
        f"mcp.{key}": {"name": "a", "url": "https://a/"}
        for key in McpServer.model_fields
        if key not in ("name", "url", "command", "env")
    },
    "mcp.command": {"name": "a"},
    "mcp.env": {"name": "a", "command": ["b"]},
    "mcp.oauth.grant": {"client_id": "a", "client_secret": "b"},
    "inputs.ref": {"git": "project.bundle"},
    "inputs.content": {"target": "a"},
    "inputs.target": {"source": "data/sales.csv"},
    "deliverables.required": {"path": "a"},
    "deliverables.max_size": {"path": "a"},
    "end.exit": {"file": "a"},
    **{f"verify.{key}": {"run": "true"} for key in ("name", "timeout", "weight", "required")},
}
"""Other fields that a field requires, by field path."""


def examples() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every field with a task that contains the field's example."""
    for name, field in Task.model_fields.items():
        assert field.examples, name
        task = {**BASE, name: field.examples[0]}
        if name == "matrix":
            del task["agent"]
        yield name, task
        for key in ((name,), (name, "0")):
            part, many = section_type(annotation_of_setting(key, Task)), len(key) == 2
            if part is None:
                continue
            yield from of_part(name, part, many)


def of_part(name: str, part: type[BaseModel], many: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    for key, field in part.model_fields.items():
        field_path = f"{name}.{key}"
        assert field.examples and field.description, field_path
        value: Any = {**COMPANIONS.get(field_path, {}), key: field.examples[0]}
        task = {**BASE, name: [value] if many else value}
        if field_path == "end.verified":
            task["verify"] = "true"
        if field_path == "matrix.agents":
            del task["agent"]
        yield field_path, task
        inner = section_type(field.annotation)
        for below, about in inner.model_fields.items() if inner is not None else ():
            assert about.examples and about.description, (field_path, below)
            beside = COMPANIONS.get(f"{field_path}.{below}", {})
            nested = {**COMPANIONS[field_path], key: {**beside, below: about.examples[0]}}
            yield f"{field_path}.{below}", {**BASE, name: [nested]}


def is_accepted(task: Any, directory: Path) -> bool:
    path = directory / "t.yaml"
    path.write_text(yaml.safe_dump(task, sort_keys=False))
    try:
        load_task_file(path)
    except InvalidTaskError as error:
        # A schema cannot check whether files exist.
        return all("there is no file" in problem.message or "bundle" in problem.message for problem in error.problems)
    return True


def test_schema_is_valid_json_schema() -> None:
    assert jsonschema_rs.meta.is_valid(task_json_schema())


@pytest.mark.parametrize(
    ("field_path", "task"), list(examples()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_example_is_valid(field_path: str, task: dict[str, Any], tmp_path: Path) -> None:
    assert is_accepted(task, tmp_path)
    assert VALIDATOR.is_valid(task), [str(error) for error in VALIDATOR.iter_errors(task)]


def test_every_field_has_an_example_and_a_description() -> None:
    found = {field_path for field_path, _ in examples()}
    assert {"name", "llm.script", "mcp.url", "inputs.git", "end.silence", "verify.run", "matrix.models"} <= found
    parts: list[type[BaseModel]] = [*TaskSection.__subclasses__(), *McpSection.__subclasses__()]
    assert len(found) == len(Task.model_fields) + sum(len(part.model_fields) for part in parts if part is not Task)


@pytest.mark.parametrize(
    "fields",
    [
        {"$schema": "task.schema.json"},
        {"goal": {"file": "goal.md"}},
        {"llm": "fast"},
        {"llm": {"model": "fast", "script": "s.yaml", "cost": 1}},
        {"mcp": "https://tools.example.org/mcp"},
        {"mcp": ["tracker", {"name": "wiki"}]},
        {"mcp": {"name": "a", "command": "python3 x.py"}},
        {"entrypoint": ["python3", "x.py"]},
        {"inputs": "a.csv"},
        {"inputs": [{"content": "x", "target": "a"}]},
        {"secrets": "TOKEN"},
        {"env": {"A": ""}},
        {"resources": {"cpu": "500m", "memory": 33554432, "disk": "1.5Gi"}},
        {"end": {"timeout": 60, "silence": None}},
        {"end": {"timeout": "1h30m"}},
        {"deliverables": {"path": "a", "max_size": "10 MB"}},
        {"verify": ["true", {"run": "false", "timeout": "90"}]},
        {"retries": 2},
        {"retries": {"on": "lost"}},
        {"kind": "code"},
    ],
)
def test_short_forms_are_valid(fields: dict[str, Any], tmp_path: Path) -> None:
    task = {**BASE, **fields}
    assert VALIDATOR.is_valid(task), [str(error) for error in VALIDATOR.iter_errors(task)]
    assert is_accepted(task, tmp_path)


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "A B"},
        {"name": 5},
        {"agent": None, "goal": 5},
        {"goal": {"flie": "x"}},
        {"goal": ""},
        {"agnet": "x"},
        {"image": "a", "kind": "code"},
        {"kind": "No Kind"},
        {"llm": "a b"},
        {"llm": {"tokens": 0}},
        {"llm": {"tokens": True}},
        {"mcp": ["ca lc"]},
        {"mcp": [{"name": "a", "kind": "remote"}]},
        {"mcp": [{"name": "a", "url": "https://a/", "command": "b"}]},
        {"entrypoint": 5},
        {"inputs": [{}]},
        {"inputs": [{"source": "a", "git": "b"}]},
        {"env": {"A B": "x"}},
        {"env": {"A": 1}},
        {"secrets": ["1A"]},
        {"resources": {"memory": "lots"}},
        {"resources": {"memory": 5}},
        {"network": 5},
        {"network": [{"permit": "pypi.org"}]},
        {"end": {"exit": "yes"}},
        {"end": {"timeout": "10 minutes"}},
        {"end": {"timeout": 0}},
        {"end": {"silence": 0}},
        {"deliverables": [{"required": True}]},
        {"verify": [{"run": ""}]},
        {"retries": 21},
        {"retries": True},
        {"retries": {"on": ["fail"]}},
        {"priority": 1.5},
        {"matrix": {"agents": [5]}},
    ],
)
def test_schema_and_loader_reject_the_same_tasks(fields: dict[str, Any], tmp_path: Path) -> None:
    task = {**BASE, **fields}
    assert not VALIDATOR.is_valid(task)
    assert not is_accepted(task, tmp_path)


def test_reference_page_is_current_and_complete() -> None:
    page = render_task_reference()
    assert (PAGES / "task-file.md").read_text(encoding="utf-8") == page, "run: make docs"
    assert (PAGES / "task.schema.json").read_text(encoding="utf-8") == task_json_schema_text(), "run: make docs"
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert len(rows) == len(list(examples())) and all(row.replace("\\|", "").count("|") == 6 for row in rows)
    assert "| `timeout` | duration | `30m` |" in page and "| `retries` | number or mapping |" in page


def test_example_of_the_reference_page_is_a_valid_task(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/sales.csv").write_text("a\n")
    path = tmp_path / "t.yaml"
    path.write_text(render_task_reference().split("```yaml\n")[1].split("```")[0])
    assert load_task_file(path).task.name == "sales-report"
