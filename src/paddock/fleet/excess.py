"""Who has written more than they may, and whether they go on."""

from __future__ import annotations

from collections.abc import Set

SLACK = 2**20
"""What tidying up may itself write."""


class Excess:
    """Remembers, for each one over its limit, the least it has used since it was last stopped."""

    def __init__(self) -> None:
        self._least: dict[str, int] = {}

    def grows(self, whose: str, used: int, limit: int) -> bool:
        """Whether to stop it: it is over its limit, and not on its way down.

        Measured from the least since the last time, so that growing slowly is growing all the same.
        """
        least = self._least.pop(whose, None)
        if used <= limit:
            return False
        growing = least is None or used > least + SLACK
        self._least[whose] = used if least is None or growing else min(least, used)
        return growing

    def keep(self, known: Set[str]) -> None:
        """Forget all others."""
        self._least = {whose: least for whose, least in self._least.items() if whose in known}
