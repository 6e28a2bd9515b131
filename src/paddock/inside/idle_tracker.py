"""Tracks when the sandbox was last used, so that the host can stop idle sandboxes."""

from __future__ import annotations

import threading
import time


class IdleTracker:
    """Counts calls under way and remembers when the last one ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls_open = 0
        self.started_at = time.monotonic()
        self._last_call_at = self.started_at

    def call_started(self) -> None:
        with self._lock:
            self._calls_open += 1
            self._last_call_at = time.monotonic()

    def call_ended(self) -> None:
        with self._lock:
            self._calls_open -= 1
            self._last_call_at = time.monotonic()

    def idle_seconds(self) -> float:
        """Return the seconds since the last call ended; 0 while a call is under way."""
        with self._lock:
            return 0.0 if self._calls_open else time.monotonic() - self._last_call_at
