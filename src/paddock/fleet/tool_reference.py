"""Generates the reference page of tools.

Run `python -m paddock.fleet.tool_reference > docs/reference/tools.md`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from paddock.fleet.kinds import BROWSER, CODE, LINUX, MOBILE, WINDOWS
from paddock.inside.tools.tool_context import ToolContext
from paddock.inside.tools.tool_registry import CallableTool, tools_for_kind
from paddock.model.screens import SandboxKind

_INTRODUCTION = """\
<!-- Written by `python -m paddock.fleet.tool_reference`; edit the tools in src/paddock/inside/tools instead. -->
# Tools

Every sandbox serves tools for what an agent can do in it. Which ones follows from its kind: `paddock tool list SANDBOX`
shows them, `paddock tool call SANDBOX NAME key=value …` calls one. Programs use `GET /v1/sandboxes/{id}/tools` and
`POST /v1/sandboxes/{id}/tools/{name}`, MCP clients `/v1/sandboxes/{id}/mcp`, and agents in the sandbox itself
`http://127.0.0.1:8765/mcp`.

- A result has text for a model to read, pictures where there are some, and the same as data (`structuredContent`). A
  tool that could not do what it was asked says so and why, with `isError`. Texts that are too long are cut, and say it.
- *Input* tools move the mouse or press keys. While a person has taken over, they wait, and then say who has.
- Points are pixels of the screen, from its upper left corner. A screenshot has a `shot` id; given to a mouse tool, `x`
  and `y` are pixels of that picture instead, at any scale and region.
- Input tools tell what changed: whether the screen did, and which window is active now.
- `input_text` writes any script, through the clipboard where keys cannot, and gives the clipboard its contents back.
- An MCP client that sends a `progressToken` with a call and accepts `text/event-stream` gets `notifications/progress`
  while the tool runs: the last line of a command's output, or how long the call has taken.
- Paths are absolute, relative to the working directory (`/workspace`), or begin with `~`.
"""
_TYPES = {"string": "text", "integer": "whole number", "boolean": "true or false", "array": "list"}


def render_tool_reference() -> str:
    """Return the page as Markdown."""
    everywhere = _tools_of_kind(CODE)
    linux = _tools_of_kind(LINUX)
    parts = [_INTRODUCTION, "## Every kind\n", *(_render_tool(tool) for tool in everywhere.values())]
    for kind, known, note in (
        (LINUX, everywhere, "Beside those of every kind:"),
        (BROWSER, everywhere, "Beside those of every kind:"),
        (WINDOWS, linux, "Those of every kind and of linux{but}, of which these are different:"),
        (MOBILE, everywhere, "Beside those of every kind:"),
    ):
        tools = _tools_of_kind(kind)
        missing = ", ".join(f"`{name}`" for name in known if name not in tools)
        note = note.format(but=f" but {missing}" if missing else "")
        parts.append(f"## {kind.name}: {kind.title}\n\n{kind.description} {note}\n")
        own = {
            name: tool
            for name, tool in tools.items()
            if _public_definition(tool) != _public_definition(known.get(name))
        }
        parts += [_render_tool(tool) for tool in own.values()]
    return "\n".join(parts)


def _tools_of_kind(kind: SandboxKind) -> Mapping[str, CallableTool]:
    return {tool.name: tool for tool in tools_for_kind(kind.name, ToolContext("/workspace", kind.name), kind.screen)}


def _public_definition(tool: CallableTool | None) -> object:
    """Return the parts of a tool that callers see, for comparison between kinds."""
    return None if tool is None else (tool.description, tool.schema)


def _render_tool(tool: CallableTool) -> str:
    words = [word for word, holds in (("input", tool.input), ("only looks", tool.read_only)) if holds]
    marks = f" *({', '.join(words)})*" if words else ""
    lines = [f"### {tool.name}\n", f"{tool.description}{marks}\n", *_render_arguments(tool.schema)]
    return "\n".join(lines)


def _render_arguments(schema: Mapping[str, Any]) -> Iterator[str]:
    if not schema["properties"]:
        return
    yield "| argument | is | default | |"
    yield "|---|---|---|---|"
    for name, rule in schema["properties"].items():
        default = "required" if name in schema["required"] else ""
        if "default" in rule:
            default = f"`{json.dumps(rule['default'], ensure_ascii=False)}`"
        about = str(rule.get("description", "")).replace("|", "\\|")
        yield f"| `{name}` | {_render_type(rule)} | {default} | {about} |"
    yield ""


def _render_type(rule: Mapping[str, Any]) -> str:
    if "enum" in rule:
        return ", ".join(f"`{value}`" for value in rule["enum"])
    kinds = rule.get("type", "anything")
    words = " or ".join(_TYPES.get(kind, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds))
    if "properties" in rule:
        words += " of " + ", ".join(f"`{name}`" for name in rule["properties"])
    minimum, maximum = rule.get("minimum"), rule.get("maximum")
    if minimum is not None and maximum is not None:
        return f"{words}, {minimum} to {maximum}"
    return f"{words}, from {minimum}" if minimum is not None else words


if __name__ == "__main__":
    sys.stdout.write(render_tool_reference())
