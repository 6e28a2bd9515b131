"""What the tools of sandboxes are called by agents, and what they may change."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Literal

from paddock.agents.engines.base import ToolSpec
from paddock.inside.tools.context import Context
from paddock.inside.tools.registry import offered
from paddock.model.screens import Kind, Tool
from paddock.model.words import WORKSPACE

LONGEST = 64
"""Characters of a name that every model takes."""
_COMMAND = re.compile(r"(run|exec|execute)_.*|shell|bash|python|command", re.IGNORECASE)
_WRITE = re.compile(
    r"(write|edit|append|create|make|move|copy|rename|delete|remove)_"
    r"(text_|multiple_)?(file|files|directory|directories|folder|path)|browser_pdf",
    re.IGNORECASE,
)
_LOOK = re.compile(r"(read|list|search|find|get|stat)_.*|.*screenshot|get_file_info|directory_tree", re.IGNORECASE)

Effect = Literal["none", "command", "write", "other"]


def called(kind: str, tool: str) -> str:
    """The name of a sandbox's tool with its kind, which it may have already."""
    name = tool if tool.startswith(f"{kind}_") else f"{kind}_{tool}"
    name = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    if len(name) <= LONGEST:
        return name
    return f"{name[: LONGEST - 9]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def effect_of(tool: Tool) -> Effect:
    """What a tool may change. What it says of itself counts more than its name."""
    if tool.read_only:
        return "none"
    if _COMMAND.fullmatch(tool.name):
        return "command"
    if _WRITE.fullmatch(tool.name):
        return "write"
    return "none" if not tool.input and _LOOK.fullmatch(tool.name) else "other"


def specs_of(kind: str, tools: Sequence[Tool]) -> list[ToolSpec]:
    """The tools of a kind of sandbox, as a model is told of them."""
    return [
        ToolSpec(
            name=called(kind, tool.name),
            description=tool.description,
            input_schema=tool.input_schema,
            kind=kind,
            tool=tool.name,
            effect=effect_of(tool),
        )
        for tool in tools
    ]


def usual_tools(kind: Kind) -> tuple[Tool, ...]:
    """What every sandbox of a kind can do, known before there is one."""
    return tuple(
        Tool(
            name=tool.name,
            description=tool.description,
            input_schema=tool.schema,
            input=tool.input,
            changes_screen=tool.changes_screen,
            read_only=tool.read_only,
        )
        for tool in offered(kind.name, Context(WORKSPACE, kind.name), kind.screen)
    )
