"""Names of sandbox tools as agents see them, and the effect of each tool."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Literal

from paddock.agents.engines.base import ToolSpec
from paddock.inside.tools.tool_context import ToolContext
from paddock.inside.tools.tool_registry import tools_for_kind
from paddock.model.screens import SandboxKind, SandboxTool
from paddock.model.task_fields import WORKSPACE

MAX_NAME_LENGTH = 64
"""Longest tool name that all model providers accept."""
_COMMAND = re.compile(r"(run|exec|execute)_.*|shell|bash|python|command", re.IGNORECASE)
_WRITE = re.compile(
    r"(write|edit|append|create|make|move|copy|rename|delete|remove)_"
    r"(text_|multiple_)?(file|files|directory|directories|folder|path)|browser_pdf",
    re.IGNORECASE,
)
_READ = re.compile(r"(read|list|search|find|get|stat)_.*|.*screenshot|get_file_info|directory_tree", re.IGNORECASE)

ToolEffect = Literal["none", "command", "write", "other"]


def qualified_tool_name(kind: str, tool: str) -> str:
    """Return the tool name prefixed with the kind; long names end in a hash."""
    name = tool if tool.startswith(f"{kind}_") else f"{kind}_{tool}"
    name = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    if len(name) <= MAX_NAME_LENGTH:
        return name
    return f"{name[: MAX_NAME_LENGTH - 9]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def sandbox_tool_effect(tool: SandboxTool) -> ToolEffect:
    """Return the effect of a tool; its own `read_only` hint takes precedence over its name."""
    if tool.read_only:
        return "none"
    if _COMMAND.fullmatch(tool.name):
        return "command"
    if _WRITE.fullmatch(tool.name):
        return "write"
    return "none" if not tool.input and _READ.fullmatch(tool.name) else "other"


def build_sandbox_tool_specs(kind: str, tools: Sequence[SandboxTool]) -> list[ToolSpec]:
    """Describe the tools of one sandbox kind for the model."""
    return [
        ToolSpec(
            name=qualified_tool_name(kind, tool.name),
            description=tool.description,
            input_schema=tool.input_schema,
            kind=kind,
            tool=tool.name,
            effect=sandbox_tool_effect(tool),
        )
        for tool in tools
    ]


def default_sandbox_tools(kind: SandboxKind) -> tuple[SandboxTool, ...]:
    """Return the tools that every sandbox of a kind offers, without starting one."""
    return tuple(
        SandboxTool(
            name=tool.name,
            description=tool.description,
            input_schema=tool.schema,
            input=tool.input,
            changes_screen=tool.changes_screen,
            read_only=tool.read_only,
        )
        for tool in tools_for_kind(kind.name, ToolContext(WORKSPACE, kind.name), kind.screen)
    )
