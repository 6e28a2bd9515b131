"""Distinguishes disk use that grows above a limit from use that stays there."""

from __future__ import annotations

from collections.abc import Set

SLACK = 2**20
"""Bytes that deleting files may write."""


class DiskOveruseTracker:
    """Tracks names above their limit: their least use since the last stop, and the number of stops."""

    def __init__(self) -> None:
        self._least: dict[str, int] = {}
        self._stops: dict[str, int] = {}

    def is_growing(self, name: str, used: int, limit: int) -> bool:
        """Return whether use is above the limit and still growing.

        Growth is measured from the least use since the last stop, so that slow growth counts too.
        """
        least = self._least.pop(name, None)
        if used <= limit:
            self._stops.pop(name, None)
            return False
        growing = least is None or used > least + SLACK
        self._least[name] = used if least is None or growing else min(least, used)
        if growing:
            self._stops[name] = self._stops.get(name, 0) + 1
        return growing

    def is_over(self, name: str) -> bool:
        """Return whether the name was above its limit when last measured."""
        return name in self._least

    def stop_count(self, name: str) -> int:
        """Return how often writes were stopped since the name went above its limit."""
        return self._stops.get(name, 0)

    def set_baseline(self, name: str, used: int) -> None:
        """Set the use after a stop as the baseline for growth."""
        if name in self._least:
            self._least[name] = used

    def keep_only(self, known: Set[str]) -> None:
        """Drop all names except these."""
        self._least = {name: least for name, least in self._least.items() if name in known}
        self._stops = {name: count for name, count in self._stops.items() if name in known}
