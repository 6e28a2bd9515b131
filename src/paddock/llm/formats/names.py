"""Names of tools that every provider takes, and the way back to the client's own.

Providers want at most 64 letters, digits, dashes and underscores; names of MCP tools are often longer or have dots.
What does not fit is shortened in the same way each time, so the map back follows from the request alone.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace

from paddock.llm.neutral import Answer, Request, ToolCall

_FITS = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_LONGEST = 64


def provider_name(name: str) -> str:
    """The name itself where every provider takes it, else one that it alone has."""
    if _FITS.fullmatch(name):
        return name
    mark = hashlib.sha256(name.encode(errors="replace")).hexdigest()[:8]
    stem = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    stem = stem if re.match(r"[A-Za-z_]", stem) else f"_{stem}"
    return f"{stem[: _LONGEST - 9]}_{mark}"


def provider_id(call_id: str, longest: int) -> str:
    """The id of a call where it is short enough for the provider, else one that it alone has."""
    if 0 < len(call_id) <= longest:
        return call_id
    return f"call_{hashlib.sha256(call_id.encode(errors='replace')).hexdigest()[: longest - 5]}"


def client_names(request: Request | None) -> dict[str, str]:
    """The client's own names of the tools that are called otherwise at the provider."""
    if request is None:
        return {}
    return {short: tool.name for tool in request.tools if (short := provider_name(tool.name)) != tool.name}


def with_client_names(answer: Answer, request: Request | None) -> Answer:
    """The answer with its calls named as the client names its tools."""
    names = client_names(request)
    if not names:
        return answer
    parts = [
        replace(part, name=names[part.name]) if isinstance(part, ToolCall) and part.name in names else part
        for part in answer.parts
    ]
    # The notes stay shared, so that what is added while the answer is written is not lost.
    return replace(answer, parts=parts)
