"""Rings that remember the latest of what a browser did; pages cannot make them grow."""

from __future__ import annotations

import itertools
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

KEPT = 500
LINE = 2000


class Ring:
    """The latest entries, each with a number that only grows."""

    def __init__(self, kept: int = KEPT) -> None:
        self._entries: deque[tuple[int, dict[str, Any]]] = deque(maxlen=kept)
        self._numbers = itertools.count(1)
        self.last = 0

    def add(self, **entry: Any) -> dict[str, Any]:
        self.last = next(self._numbers)
        entry["number"] = self.last
        self._entries.append((self.last, entry))
        return entry

    def since(self, number: int) -> list[dict[str, Any]]:
        return [entry for known, entry in self._entries if known > number]

    def clear(self) -> None:
        self._entries.clear()


def cut(text: object, limit: int = LINE) -> str:
    """One bounded piece of what a page said."""
    line = text if isinstance(text, str) else str(text)
    return line if len(line) <= limit else f"{line[:limit]}… [{len(line) - limit} more]"
