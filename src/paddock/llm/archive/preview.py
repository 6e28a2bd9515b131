"""The beginning of what a request newly says, for lists of exchanges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

MOST = 200
"""Characters."""
_LOOKED_AT = 4
"""Messages from the end; beyond these a preview would not tell what is new."""
_LARGEST = 256 * 1024
_NESTED = ("text", "content", "parts", "output", "functionResponse", "response", "result")
_DEEPEST = 6
_REMINDER = "<system-reminder>"
"""Begins what claude-code adds to messages of its user."""


def preview_of(thread: Sequence[bytes]) -> str:
    """Return the beginning of the newest message that says something, or an empty text."""
    for raw in reversed(thread[-_LOOKED_AT:]):
        if len(raw) > _LARGEST:
            continue
        try:
            message = msgspec.json.decode(raw)
        except (msgspec.DecodeError, RecursionError):
            continue
        if isinstance(message, dict) and message.get("role") in ("system", "developer"):
            continue
        # What people write comes after what their client adds.
        texts = [text for text in _texts(message, 0) if text.strip() and not text.lstrip().startswith(_REMINDER)]
        if texts:
            return _shortened(texts[-1])
    return ""


def _texts(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and depth < _DEEPEST:
        for item in value:
            yield from _texts(item, depth + 1)
    elif isinstance(value, dict) and depth < _DEEPEST:
        for name in _NESTED:
            if name in value:
                yield from _texts(value[name], depth + 1)


def _shortened(text: str) -> str:
    line = " ".join(text[: MOST * 4].split())
    line = line if len(line) <= MOST else f"{line[: MOST - 1]}\N{HORIZONTAL ELLIPSIS}"
    return line if line.isascii() else line.encode(errors="replace").decode()
