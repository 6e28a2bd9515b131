"""Expansion of a task's matrix into runs."""

from __future__ import annotations

from paddock.model.task import Task


def expand_task_matrix(task: Task) -> list[tuple[str, Task]]:
    """Return the name and the task of every run, without the matrix.

    Matrix runs are named `TASK/AGENT/MODEL`, with varied parts only, ordered by agent.
    """
    if task.matrix is None:
        return [(task.name, task)]
    runs = []
    for agent in task.matrix.agents or (None,):
        for model in task.matrix.models or (None,):
            change: dict[str, object] = {"matrix": None}
            if agent is not None:
                change["agent"] = agent
            if model is not None:
                change["llm"] = task.llm.model_copy(update={"model": model})
            name = "/".join(part for part in (task.name, agent, model) if part is not None)
            runs.append((name, task.model_copy(update=change)))
    return runs
