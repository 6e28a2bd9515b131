"""Function definitions of Anthropic's client-run tools: bash, text editor, computer and memory.

Anthropic's models know the arguments of these tools, so requests carry no schema. Other models get a schema here.
"""

from __future__ import annotations

import re
from typing import Any

from paddock.llm.formats.json_fields import JsonFields
from paddock.llm.formats.neutral import ToolDefinition

_TOOL_TYPE = re.compile(r"(bash|text_editor|computer|memory)_(\d{8})")
_STRING_SCHEMA = {"type": "string"}
_INTEGER_SCHEMA = {"type": "integer"}
_PAIR_SCHEMA = {"type": "array", "items": _INTEGER_SCHEMA, "minItems": 2, "maxItems": 2}
_POINT_SCHEMA = {**_PAIR_SCHEMA, "description": "[x, y] in pixels from the top left corner."}

_BASH_FIELDS = {
    "command": {**_STRING_SCHEMA, "description": "The command to run. Required unless restart is true."},
    "restart": {"type": "boolean", "description": "Start a new shell session."},
}
_EDITOR_FIELDS = {
    "path": {**_STRING_SCHEMA, "description": "Absolute path of a file or directory."},
    "file_text": {**_STRING_SCHEMA, "description": "For create: the content of the new file."},
    "old_str": {**_STRING_SCHEMA, "description": "For str_replace: the text to replace; it must occur exactly once."},
    "new_str": {**_STRING_SCHEMA, "description": "For str_replace: the new text."},
    "insert_line": {
        **_INTEGER_SCHEMA,
        "description": "For insert: the line after which the text goes; 0 for the start.",
    },
    "view_range": {**_PAIR_SCHEMA, "description": "For view: first and last line; -1 stands for the end of the file."},
}
_INSERT_FIELDS = {"insert_text": {**_STRING_SCHEMA, "description": "For insert: the text to insert."}}
_RENAME_FIELDS = {
    "old_path": {**_STRING_SCHEMA, "description": "For rename: the present path."},
    "new_path": {**_STRING_SCHEMA, "description": "For rename: the new path."},
}
_CLICK_ACTIONS = ["left_click", "right_click", "middle_click", "double_click"]
_ACTIONS = ["key", "type", "mouse_move", *_CLICK_ACTIONS, "left_click_drag", "screenshot", "cursor_position"]
_ACTIONS_SINCE_2025 = ["left_mouse_down", "left_mouse_up", "triple_click", "scroll", "hold_key", "wait"]
_COMPUTER_FIELDS = {
    "coordinate": _POINT_SCHEMA,
    "text": {**_STRING_SCHEMA, "description": "For type: the text. For key and hold_key: keys such as ctrl+s."},
}
_COMPUTER_FIELDS_SINCE_2025 = {
    "start_coordinate": {**_POINT_SCHEMA, "description": "For left_click_drag: where the drag starts."},
    "scroll_direction": {**_STRING_SCHEMA, "enum": ["up", "down", "left", "right"]},
    "scroll_amount": {**_INTEGER_SCHEMA, "description": "For scroll: number of steps."},
    "duration": {"type": "number", "description": "For wait and hold_key: seconds."},
}


def anthropic_client_tool_as_function(tool: JsonFields) -> ToolDefinition | None:
    """Return the function tool for a tool the client runs, or None for any other tool."""
    found = _TOOL_TYPE.fullmatch(tool.text("type"))
    if found is None:
        return None
    family, date = found[1], int(found[2])
    cached = "cache_control" in tool
    if family == "bash":
        return _function_tool(tool, "bash", "Run a command in a persistent bash session.", _BASH_FIELDS, [], cached)
    if family == "text_editor":
        name = "str_replace_based_edit_tool" if date >= 20250429 else "str_replace_editor"
        commands = ["view", "create", "str_replace", "insert"]
        if date < 20250429:
            commands.append("undo_edit")
        properties = {"command": {**_STRING_SCHEMA, "enum": commands}, **_EDITOR_FIELDS, **_INSERT_FIELDS}
        return _function_tool(tool, name, "View, create and edit files.", properties, ["command", "path"], cached)
    if family == "memory":
        commands = ["view", "create", "str_replace", "insert", "delete", "rename"]
        properties = {
            "command": {**_STRING_SCHEMA, "enum": commands},
            **_EDITOR_FIELDS,
            **_INSERT_FIELDS,
            **_RENAME_FIELDS,
        }
        description = "Keep notes in files under /memories that last beyond this conversation."
        return _function_tool(tool, "memory", description, properties, ["command"], cached)
    return _computer_function(tool, date, cached)


def _computer_function(tool: JsonFields, date: int, cached: bool) -> ToolDefinition:
    actions, properties = list(_ACTIONS), dict(_COMPUTER_FIELDS)
    if date >= 20250124:
        actions += _ACTIONS_SINCE_2025
        properties |= _COMPUTER_FIELDS_SINCE_2025
    if date >= 20251124:
        actions.append("zoom")
        properties["region"] = {
            "type": "array",
            "items": _INTEGER_SCHEMA,
            "minItems": 4,
            "maxItems": 4,
            "description": "For zoom: [left, top, right, bottom] in pixels.",
        }
    size = f"{tool.optional_integer('display_width_px') or '?'} x {tool.optional_integer('display_height_px') or '?'}"
    description = f"Use the mouse and keyboard of a computer and take screenshots. The screen has {size} pixels."
    return _function_tool(
        tool, "computer", description, {"action": {**_STRING_SCHEMA, "enum": actions}, **properties}, ["action"], cached
    )


def _function_tool(
    tool: JsonFields, name: str, description: str, properties: dict[str, Any], required: list[str], cached: bool
) -> ToolDefinition:
    schema = {"type": "object", "properties": properties, "required": required}
    return ToolDefinition(tool.optional_text("name") or name, description, schema, cached=cached)
