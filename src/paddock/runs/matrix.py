"""The runs that a task stands for."""

from __future__ import annotations

from paddock.model.task import Task


def expand(task: Task) -> list[tuple[str, Task]]:
    """Every run of a task: its name, and the task without a matrix.

    Runs of a matrix are called `TASK/AGENT/MODEL`, with only what the matrix varies, agents in their order first.
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
