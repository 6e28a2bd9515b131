"""Tools that the client of a session runs itself, such as those of an AG-UI front end.

A call of one is a question that the client answers with the result, so it waits as long as other questions, across
restarts of the server too.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from paddock.agents.engines.base import ToolSpec
from paddock.agents.policy import ASK_USER
from paddock.errors import InvalidInput
from paddock.model.sessions import Approval, ClientTool

RESERVED = frozenset({"task", "write_todos"})
"""Names of tools that engines bring along."""


class ToolNameTaken(InvalidInput):
    """The session has a tool of that name itself."""

    code = "TOOL_NAME_TAKEN"


def check_names(tools: Sequence[ClientTool], taken: Collection[str]) -> None:
    """Raise `ToolNameTaken` for tools whose names the session or the engine uses."""
    clashing = sorted({tool.name for tool in tools} & (RESERVED | set(taken)))
    if clashing:
        names = ", ".join(clashing)
        raise ToolNameTaken(f"the session has tools of its own named {names}; give the front end's tools other names")


def client_spec(tool: ClientTool) -> ToolSpec:
    """Return the tool as the model is told of it."""
    return ToolSpec(
        name=tool.name, description=tool.description, input_schema=tool.input_schema, tool=tool.name, client=True
    )


def is_client_call(approval: Approval) -> bool:
    """Return whether the approval is a call that the client runs, not a question of the agent."""
    return approval.type == "question" and approval.name != ASK_USER
