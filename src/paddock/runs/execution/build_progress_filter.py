"""Rate limit for the progress events of an image build."""

from __future__ import annotations

from paddock.sandbox.images import BuildProgress

EVERY = 5.0
"""Minimum seconds between two reports of one build step; builders report every line of output."""


class BuildProgressFilter:
    """Select the build progress that is worth an event."""

    def __init__(self) -> None:
        self._told: BuildProgress | None = None
        self._at = 0.0

    def should_report(self, now: BuildProgress, at: float) -> bool:
        """Return whether to report: a new step at once, the same step again after a pause."""
        last = self._told
        if last is not None and last.step == now.step and (last.fraction == now.fraction or at - self._at < EVERY):
            return False
        self._told, self._at = now, at
        return True
