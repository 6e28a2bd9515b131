"""Expansion of a task's matrix into runs."""

from __future__ import annotations

from typing import Any

import pytest

from paddock.model.task import Task
from paddock.runs.tasks.matrix_expansion import expand_task_matrix


def task(**fields: Any) -> Task:
    return Task.model_validate({"name": "demo", "goal": "Do it.", **fields})


def test_a_task_without_a_matrix_is_one_run() -> None:
    only = task(agent="codex")
    assert expand_task_matrix(only) == [("demo", only)]


@pytest.mark.parametrize(
    ("fields", "runs"),
    [
        (
            {"matrix": {"agents": ["codex", "opencode"], "models": ["m1", "lab/m2"]}},
            [
                ("demo/codex/m1", "codex", "m1"),
                ("demo/codex/lab/m2", "codex", "lab/m2"),
                ("demo/opencode/m1", "opencode", "m1"),
                ("demo/opencode/lab/m2", "opencode", "lab/m2"),
            ],
        ),
        (
            {"matrix": {"agents": ["a", "b"]}, "llm": "fast"},
            [("demo/a", "a", "fast"), ("demo/b", "b", "fast")],
        ),
        ({"matrix": {"models": "m1"}, "agent": "codex"}, [("demo/m1", "codex", "m1")]),
        ({"matrix": {"models": ["m1"]}, "entrypoint": "work"}, [("demo/m1", None, "m1")]),
    ],
)
def test_each_agent_and_model_pair_is_a_run(fields: dict[str, Any], runs: list[tuple[str, str | None, str]]) -> None:
    made = expand_task_matrix(task(**fields))
    assert [(name, each.agent, each.llm.model) for name, each in made] == runs
    # Each expanded task is a valid task without a matrix.
    for _, each in made:
        assert each.matrix is None and Task.model_validate(each.model_dump(mode="json")) == each


def test_matrix_keeps_the_other_fields() -> None:
    ((_, made),) = expand_task_matrix(
        task(agent="codex", llm={"tokens": 5, "script": "turns: []"}, matrix={"models": ["m"]})
    )
    assert (made.llm.model, made.llm.tokens, made.llm.script) == ("m", 5, "turns: []")
