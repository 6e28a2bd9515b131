"""Map tool names and call IDs to values that every provider accepts, and restore the client's names.

Providers accept at most 64 letters, digits, dashes and underscores; names of MCP tools are often longer or contain
dots. Shortening is deterministic, so the reverse mapping can be derived from the request.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace

from paddock.llm.formats.neutral import ModelAnswer, ModelRequest, ModelToolCall

_VALID_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_MAX_LENGTH = 64


def to_provider_tool_name(name: str) -> str:
    """Return the name unchanged if every provider accepts it, else a unique replacement."""
    if _VALID_NAME.fullmatch(name):
        return name
    mark = hashlib.sha256(name.encode(errors="replace")).hexdigest()[:8]
    valid_name = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    valid_name = valid_name if re.match(r"[A-Za-z_]", valid_name) else f"_{valid_name}"
    return f"{valid_name[: _MAX_LENGTH - 9]}_{mark}"


def to_provider_call_id(call_id: str, longest: int) -> str:
    """Return the call ID unchanged if it is short enough, else a unique replacement."""
    if 0 < len(call_id) <= longest:
        return call_id
    return f"call_{hashlib.sha256(call_id.encode(errors='replace')).hexdigest()[: longest - 5]}"


def map_to_client_tool_names(request: ModelRequest | None) -> dict[str, str]:
    """Map provider tool names to the client's names, for tools that were renamed."""
    if request is None:
        return {}
    return {short: tool.name for tool in request.tools if (short := to_provider_tool_name(tool.name)) != tool.name}


def restore_client_tool_names(answer: ModelAnswer, request: ModelRequest | None) -> ModelAnswer:
    """Replace provider tool names in an answer by the client's names."""
    names = map_to_client_tool_names(request)
    if not names:
        return answer
    parts = [
        replace(part, name=names[part.name]) if isinstance(part, ModelToolCall) and part.name in names else part
        for part in answer.parts
    ]
    # The notes list stays shared: writers of the answer still add to it.
    return replace(answer, parts=parts)
