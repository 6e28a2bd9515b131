"""Tools that the client of a session runs itself, such as tools of an AG-UI front end.

A call of such a tool is an approval that the client answers with the result, so it also survives restarts.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from paddock.agents.engines.base import ToolSpec
from paddock.errors import InvalidInput
from paddock.model.sessions import ClientTool

RESERVED_NAMES = frozenset({"task", "write_todos"})
"""Names of tools that engines provide themselves."""


class ToolNameTaken(InvalidInput):
    """The session already has a tool of that name."""

    code = "TOOL_NAME_TAKEN"


def check_tool_names(tools: Sequence[ClientTool], taken: Collection[str]) -> None:
    """Raise `ToolNameTaken` if the session or the engine already uses a name."""
    clashing = sorted({tool.name for tool in tools} & (RESERVED_NAMES | set(taken)))
    if clashing:
        names = ", ".join(clashing)
        raise ToolNameTaken(f"the session already has tools named {names}; rename the front end's tools")


def client_tool_spec(tool: ClientTool) -> ToolSpec:
    """Return the tool description for the model."""
    return ToolSpec(
        name=tool.name, description=tool.description, input_schema=tool.input_schema, tool=tool.name, client=True
    )
