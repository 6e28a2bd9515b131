"""A preview of the newest message of a request, for lists of exchanges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

MAX_PREVIEW_CHARACTERS = 200
"""Maximum length of a preview."""
_LOOKED_AT = 4
"""Messages from the end that are considered; earlier ones are not new."""
_LARGEST = 256 * 1024
_NESTED = ("text", "content", "parts", "output", "functionResponse", "response", "result")
_DEEPEST = 6
_REMINDER = "<system-reminder>"
"""Prefix of text that claude-code adds to the user's messages."""


def make_message_preview(thread: Sequence[bytes]) -> str:
    """Return the beginning of the newest message with text, or an empty string."""
    for raw in reversed(thread[-_LOOKED_AT:]):
        if len(raw) > _LARGEST:
            continue
        try:
            message = msgspec.json.decode(raw)
        except (msgspec.DecodeError, RecursionError):
            continue
        if isinstance(message, dict) and message.get("role") in ("system", "developer"):
            continue
        # The user's text comes after the text added by the client.
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
    line = " ".join(text[: MAX_PREVIEW_CHARACTERS * 4].split())
    line = (
        line if len(line) <= MAX_PREVIEW_CHARACTERS else f"{line[: MAX_PREVIEW_CHARACTERS - 1]}\N{HORIZONTAL ELLIPSIS}"
    )
    return line if line.isascii() else line.encode(errors="replace").decode()
