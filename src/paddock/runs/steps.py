"""Which of the many signs of an image's build are told."""

from __future__ import annotations

from paddock.sandbox.images import Progress

EVERY = 5.0
"""Seconds between two signs of the same step; builders give one for each line that they print."""


class Steps:
    """Remembers what of a build was told last."""

    def __init__(self) -> None:
        self._told: Progress | None = None
        self._at = 0.0

    def worth_telling(self, now: Progress, at: float) -> bool:
        """Whether this is news: another step at once, more of the same one if the last news is a while ago."""
        last = self._told
        if last is not None and last.step == now.step and (last.fraction == now.fraction or at - self._at < EVERY):
            return False
        self._told, self._at = now, at
        return True
