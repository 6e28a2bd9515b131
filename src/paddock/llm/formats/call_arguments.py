"""Convert the arguments of tool calls between JSON text and objects."""

from __future__ import annotations

import json
from typing import Any


def parse_call_arguments(arguments: str) -> dict[str, Any]:
    """Parse the JSON arguments of a call. Invalid JSON and other types are wrapped as `{"arguments": …}`."""
    try:
        value = json.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError):
        value = arguments
    return value if isinstance(value, dict) else {"arguments": value}


def call_arguments_text(value: Any) -> str:
    """Return the arguments of a call as JSON text, given as text or as an object; empty if there are none."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
