"""Ring buffers of browser events, bounded so that pages cannot make them grow."""

from __future__ import annotations

import itertools
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_ENTRIES = 500
MAX_LINE = 2000


class EventRingBuffer:
    """The latest entries, with increasing numbers."""

    def __init__(self, kept: int = MAX_ENTRIES) -> None:
        self._entries: deque[tuple[int, dict[str, Any]]] = deque(maxlen=kept)
        self._numbers = itertools.count(1)
        self.last_number = 0

    def add(self, **entry: Any) -> dict[str, Any]:
        self.last_number = next(self._numbers)
        entry["number"] = self.last_number
        self._entries.append((self.last_number, entry))
        return entry

    def entries_since(self, number: int) -> list[dict[str, Any]]:
        return [entry for known, entry in self._entries if known > number]

    def clear(self) -> None:
        self._entries.clear()


def truncate_with_note(text: object, limit: int = MAX_LINE) -> str:
    """Return a text cut to `limit` characters, with a note on the rest."""
    line = text if isinstance(text, str) else str(text)
    return line if len(line) <= limit else f"{line[:limit]}… [{len(line) - limit} more]"
