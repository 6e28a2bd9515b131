"""Validates tool lists and tool results that come from untrusted sandboxes."""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from paddock.errors import SandboxGone
from paddock.model.screens import SandboxTool, ToolResult, ToolResultImage, ToolResultText

MAX_TOOLS = 500
MAX_PARTS = 200
MAX_FILES = 1000
MAX_DEPTH = 64
"""Nesting depth of structured data that is accepted from a sandbox."""
TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
METADATA_KEY = "paddock"
"""Key in `_meta` of tools and results for Paddock's own metadata."""
_PICTURE_TYPE = re.compile(r"image/[a-z0-9.+-]{1,40}")


def parse_tools(documents: object) -> tuple[SandboxTool, ...]:
    """Parse the tools of an MCP `tools/list` result; skip invalid ones. Raises `SandboxGone`."""
    if not isinstance(documents, Sequence) or isinstance(documents, (str, bytes)):
        raise SandboxGone("the sandbox returned an invalid tool list")
    found = (_parse_tool(document) for document in documents[:MAX_TOOLS])
    return tuple({tool.name: tool for tool in found if tool is not None}.values())


def parse_tool_result(document: object) -> ToolResult:
    """Parse MCP's `CallToolResult`. Raises `SandboxGone`."""
    content = document.get("content", []) if isinstance(document, Mapping) else None
    if not isinstance(document, Mapping) or not isinstance(content, list):
        raise SandboxGone("the sandbox returned an invalid tool result")
    structured = document.get("structuredContent")
    return ToolResult(
        content=tuple(_parse_part(part) for part in content[:MAX_PARTS]),
        structured=structured if isinstance(structured, dict) and _is_plain_json(structured) else None,
        failed=document.get("isError") is True,
        files=written_files_of_result(document),
    )


def written_files_of_result(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the paths that a tool reports to have written."""
    files = paddock_metadata(document).get("files")
    listed = files[:MAX_FILES] if isinstance(files, list) else []
    return tuple(_valid_unicode(path) for path in listed if isinstance(path, str) and path)


def paddock_metadata(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return Paddock's own metadata of a tool or result."""
    meta = document.get("_meta")
    found = meta.get(METADATA_KEY) if isinstance(meta, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def tool_result_to_mcp(result: ToolResult) -> dict[str, Any]:
    """Convert a result to MCP's `CallToolResult`."""
    document: dict[str, Any] = {"content": [_dump_part(part) for part in result.content], "isError": result.failed}
    if result.structured is not None:
        document["structuredContent"] = dict(result.structured)
    if result.files:
        document["_meta"] = {METADATA_KEY: {"files": list(result.files)}}
    return document


def _parse_tool(document: object) -> SandboxTool | None:
    if not isinstance(document, Mapping):
        return None
    name, schema, hints = document.get("name"), document.get("inputSchema"), document.get("annotations")
    if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
        return None
    metadata = paddock_metadata(document)
    return SandboxTool(
        name=name,
        description=_valid_unicode(str(document.get("description") or "")),
        input_schema=schema if isinstance(schema, dict) and _is_plain_json(schema) else {"type": "object"},
        input=metadata.get("input") is True,
        changes_screen=metadata.get("changesScreen") is True,
        read_only=isinstance(hints, Mapping) and hints.get("readOnlyHint") is True,
    )


def _parse_part(part: object) -> ToolResultText | ToolResultImage:
    if isinstance(part, Mapping) and part.get("type") == "image":
        data, mime = part.get("data"), part.get("mimeType")
        try:
            if isinstance(data, str) and isinstance(mime, str) and _PICTURE_TYPE.fullmatch(mime):
                return ToolResultImage(data=base64.b64decode(data, validate=True), mime=mime)
        except binascii.Error:
            pass
    text = part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else None
    if not isinstance(text, str):
        raise SandboxGone("the sandbox returned an invalid tool result")
    return ToolResultText(text=_valid_unicode(text))


def _is_plain_json(value: object, left: int = MAX_DEPTH) -> bool:
    """Tell whether a value can be serialized as JSON: not too deep, and only finite numbers."""
    if isinstance(value, dict):
        return left > 0 and all(_is_plain_json(each, left - 1) for each in value.values())
    if isinstance(value, list):
        return left > 0 and all(_is_plain_json(each, left - 1) for each in value)
    return not isinstance(value, float) or math.isfinite(value)


def _valid_unicode(text: str) -> str:
    """Replace lone surrogates, which JSON can hold but UTF-8 cannot."""
    return text.encode(errors="replace").decode()


def _dump_part(part: ToolResultText | ToolResultImage) -> dict[str, Any]:
    if isinstance(part, ToolResultText):
        return {"type": "text", "text": part.text}
    return {"type": "image", "data": base64.b64encode(part.data).decode(), "mimeType": part.mime}
