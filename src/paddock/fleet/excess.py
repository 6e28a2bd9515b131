"""Tells use that grows beyond a limit from use that only stays there."""

from __future__ import annotations

from collections.abc import Set

SLACK = 2**20
"""Bytes that deleting files may itself write."""


class Excess:
    """Remembers, for each name over its limit, its least use since it was last stopped, and how often it was."""

    def __init__(self) -> None:
        self._least: dict[str, int] = {}
        self._stops: dict[str, int] = {}

    def grows(self, name: str, used: int, limit: int) -> bool:
        """Tell whether to stop it: it is over its limit and still growing.

        Growth is measured from the least use since the last stop, so that growing slowly counts too.
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

    def over(self, name: str) -> bool:
        """Tell whether it was over its limit when last measured."""
        return name in self._least

    def stops(self, name: str) -> int:
        """Return how often it was stopped since it went over its limit."""
        return self._stops.get(name, 0)

    def settle(self, name: str, used: int) -> None:
        """Take what is used once it has been stopped as the starting point."""
        if name in self._least:
            self._least[name] = used

    def keep(self, known: Set[str]) -> None:
        """Forget all others."""
        self._least = {name: least for name, least in self._least.items() if name in known}
        self._stops = {name: count for name, count in self._stops.items() if name in known}
