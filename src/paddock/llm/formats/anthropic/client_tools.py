"""Function tools for the tools of Anthropic's API that the client runs itself: bash, text editor, computer, memory.

Anthropic's models know their arguments from training and requests carry no schema. Other models get the schema.
"""

from __future__ import annotations

import re
from typing import Any

from paddock.llm.formats.fields import Fields
from paddock.llm.neutral import Tool

_DATED = re.compile(r"(bash|text_editor|computer|memory)_(\d{8})")
_TEXT = {"type": "string"}
_NUMBER = {"type": "integer"}
_RANGE = {"type": "array", "items": _NUMBER, "minItems": 2, "maxItems": 2}
_POINT = {**_RANGE, "description": "[x, y] in pixels from the top left corner."}

_BASH = {
    "command": {**_TEXT, "description": "The command to run. Required unless restart is true."},
    "restart": {"type": "boolean", "description": "Start a new shell session."},
}
_EDIT = {
    "path": {**_TEXT, "description": "Absolute path of a file or directory."},
    "file_text": {**_TEXT, "description": "For create: the content of the new file."},
    "old_str": {**_TEXT, "description": "For str_replace: the text to replace; it must occur exactly once."},
    "new_str": {**_TEXT, "description": "For str_replace: the new text."},
    "insert_line": {**_NUMBER, "description": "For insert: the line after which the text goes; 0 for the start."},
    "view_range": {**_RANGE, "description": "For view: first and last line; -1 stands for the end of the file."},
}
_INSERTED = {"insert_text": {**_TEXT, "description": "For insert: the text to insert."}}
_RENAMED = {
    "old_path": {**_TEXT, "description": "For rename: the present path."},
    "new_path": {**_TEXT, "description": "For rename: the new path."},
}
_CLICKS = ["left_click", "right_click", "middle_click", "double_click"]
_ACTIONS = ["key", "type", "mouse_move", *_CLICKS, "left_click_drag", "screenshot", "cursor_position"]
_LATER_ACTIONS = ["left_mouse_down", "left_mouse_up", "triple_click", "scroll", "hold_key", "wait"]
_COMPUTER = {
    "coordinate": _POINT,
    "text": {**_TEXT, "description": "For type: the text. For key and hold_key: keys such as ctrl+s."},
}
_LATER_COMPUTER = {
    "start_coordinate": {**_POINT, "description": "For left_click_drag: where the drag starts."},
    "scroll_direction": {**_TEXT, "enum": ["up", "down", "left", "right"]},
    "scroll_amount": {**_NUMBER, "description": "For scroll: number of steps."},
    "duration": {"type": "number", "description": "For wait and hold_key: seconds."},
}


def client_tool(tool: Fields) -> Tool | None:
    """Return the function tool for a tool the client runs, or None for any other tool."""
    found = _DATED.fullmatch(tool.text("type"))
    if found is None:
        return None
    family, date = found[1], int(found[2])
    cached = "cache_control" in tool
    if family == "bash":
        return _tool(tool, "bash", "Run a command in a persistent bash session.", _BASH, [], cached)
    if family == "text_editor":
        name = "str_replace_based_edit_tool" if date >= 20250429 else "str_replace_editor"
        commands = ["view", "create", "str_replace", "insert"]
        if date < 20250429:
            commands.append("undo_edit")
        properties = {"command": {**_TEXT, "enum": commands}, **_EDIT, **_INSERTED}
        return _tool(tool, name, "View, create and edit files.", properties, ["command", "path"], cached)
    if family == "memory":
        commands = ["view", "create", "str_replace", "insert", "delete", "rename"]
        properties = {"command": {**_TEXT, "enum": commands}, **_EDIT, **_INSERTED, **_RENAMED}
        description = "Keep notes in files under /memories that last beyond this conversation."
        return _tool(tool, "memory", description, properties, ["command"], cached)
    return _computer(tool, date, cached)


def _computer(tool: Fields, date: int, cached: bool) -> Tool:
    actions, properties = list(_ACTIONS), dict(_COMPUTER)
    if date >= 20250124:
        actions += _LATER_ACTIONS
        properties |= _LATER_COMPUTER
    if date >= 20251124:
        actions.append("zoom")
        properties["region"] = {
            "type": "array",
            "items": _NUMBER,
            "minItems": 4,
            "maxItems": 4,
            "description": "For zoom: [left, top, right, bottom] in pixels.",
        }
    size = f"{tool.integer_or('display_width_px') or '?'} x {tool.integer_or('display_height_px') or '?'}"
    description = f"Use the mouse and keyboard of a computer and take screenshots. The screen has {size} pixels."
    return _tool(
        tool, "computer", description, {"action": {**_TEXT, "enum": actions}, **properties}, ["action"], cached
    )


def _tool(
    tool: Fields, name: str, description: str, properties: dict[str, Any], required: list[str], cached: bool
) -> Tool:
    schema = {"type": "object", "properties": properties, "required": required}
    return Tool(tool.text_or("name") or name, description, schema, cached=cached)
