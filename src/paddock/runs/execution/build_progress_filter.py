"""Rate limit for the progress events of an image build."""

from __future__ import annotations

from paddock.sandbox.images import BuildProgress

MIN_REPORT_INTERVAL = 5.0
"""Minimum seconds between two reports of one build step; builders report every line of output."""


class BuildProgressFilter:
    """Select the build progress that is worth an event."""

    def __init__(self) -> None:
        self._last_reported: BuildProgress | None = None
        self._reported_at = 0.0

    def should_report(self, progress: BuildProgress, now: float) -> bool:
        """Return whether to report: a new step at once, the same step again after a pause."""
        last = self._last_reported
        if (
            last is not None
            and last.step == progress.step
            and (last.fraction == progress.fraction or now - self._reported_at < MIN_REPORT_INTERVAL)
        ):
            return False
        self._last_reported, self._reported_at = progress, now
        return True
