"""What boxes say of their tools and of calls, read as data that may be wrong in every way."""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from paddock.errors import BoxGone
from paddock.model.screens import ImagePart, TextPart, Tool, ToolResult

MOST_TOOLS = 500
MOST_PARTS = 200
MOST_FILES = 1000
DEEPEST = 64
"""Levels of what a box says that is passed on as it is."""
TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
OURS = "paddock"
"""What we say of a tool or a result beyond MCP stands under this in its `_meta`."""
_PICTURE = re.compile(r"image/[a-z0-9.+-]{1,40}")


def read_tools(documents: object) -> tuple[Tool, ...]:
    """The tools of a box, from what MCP's `tools/list` answers. What is no tool is left out. Raises `BoxGone`."""
    if not isinstance(documents, Sequence) or isinstance(documents, (str, bytes)):
        raise BoxGone("the sandbox does not say what its tools are")
    found = (_tool(document) for document in documents[:MOST_TOOLS])
    return tuple({tool.name: tool for tool in found if tool is not None}.values())


def read_result(document: object) -> ToolResult:
    """What came of a call, from MCP's `CallToolResult`. Raises `BoxGone`."""
    content = document.get("content", []) if isinstance(document, Mapping) else None
    if not isinstance(document, Mapping) or not isinstance(content, list):
        raise BoxGone("the sandbox answers the call with nonsense")
    structured = document.get("structuredContent")
    return ToolResult(
        content=tuple(_part(part) for part in content[:MOST_PARTS]),
        structured=structured if isinstance(structured, dict) and _shallow(structured) else None,
        failed=document.get("isError") is True,
        files=written(document),
    )


def written(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Paths that a call says it has written."""
    files = ours(document).get("files")
    listed = files[:MOST_FILES] if isinstance(files, list) else []
    return tuple(_whole(path) for path in listed if isinstance(path, str) and path)


def ours(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """What we say of a thing beyond MCP."""
    meta = document.get("_meta")
    found = meta.get(OURS) if isinstance(meta, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def write_result(result: ToolResult) -> dict[str, Any]:
    """A result as MCP has it."""
    document: dict[str, Any] = {"content": [_written_part(part) for part in result.content], "isError": result.failed}
    if result.structured is not None:
        document["structuredContent"] = dict(result.structured)
    if result.files:
        document["_meta"] = {OURS: {"files": list(result.files)}}
    return document


def _tool(document: object) -> Tool | None:
    if not isinstance(document, Mapping):
        return None
    name, schema, hints = document.get("name"), document.get("inputSchema"), document.get("annotations")
    if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
        return None
    said = ours(document)
    return Tool(
        name=name,
        description=_whole(str(document.get("description") or "")),
        input_schema=schema if isinstance(schema, dict) and _shallow(schema) else {"type": "object"},
        input=said.get("input") is True,
        changes_screen=said.get("changesScreen") is True,
        read_only=isinstance(hints, Mapping) and hints.get("readOnlyHint") is True,
    )


def _part(part: object) -> TextPart | ImagePart:
    if isinstance(part, Mapping) and part.get("type") == "image":
        data, mime = part.get("data"), part.get("mimeType")
        try:
            if isinstance(data, str) and isinstance(mime, str) and _PICTURE.fullmatch(mime):
                return ImagePart(data=base64.b64decode(data, validate=True), mime=mime)
        except binascii.Error:
            pass
    text = part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else None
    if not isinstance(text, str):
        raise BoxGone("the sandbox answers the call with nonsense")
    return TextPart(text=_whole(text))


def _shallow(value: object, left: int = DEEPEST) -> bool:
    """Whether a value can be written as JSON again: it is not too deep, and its numbers are ones that JSON has."""
    if isinstance(value, dict):
        return left > 0 and all(_shallow(each, left - 1) for each in value.values())
    if isinstance(value, list):
        return left > 0 and all(_shallow(each, left - 1) for each in value)
    return not isinstance(value, float) or math.isfinite(value)


def _whole(text: str) -> str:
    """Text without halves of characters, which JSON can hold and nothing else can."""
    return text.encode(errors="replace").decode()


def _written_part(part: TextPart | ImagePart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    return {"type": "image", "data": base64.b64encode(part.data).decode(), "mimeType": part.mime}
