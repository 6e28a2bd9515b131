"""Bounds the events of a stream in each second."""

from __future__ import annotations

import time
from collections import Counter


class EventRateLimit:
    """Counts events by stream in the current second, so that a busy sandbox cannot flood the log."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._second = 0
        self._counts: Counter[str] = Counter()

    def may_publish(self, stream: str) -> bool:
        """Count an event; return false if the stream has had its events of this second."""
        second = int(time.monotonic())
        if second != self._second:
            self._second = second
            self._counts.clear()
        self._counts[stream] += 1
        return self._counts[stream] <= self._per_second
