"""When the box was last used, for whoever decides that it is idle."""

from __future__ import annotations

import threading
import time


class Activity:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = 0
        self.started = time.monotonic()
        self._last = self.started

    def begin(self) -> None:
        with self._lock:
            self._open += 1
            self._last = time.monotonic()

    def end(self) -> None:
        with self._lock:
            self._open -= 1
            self._last = time.monotonic()

    def idle_seconds(self) -> float:
        """Return how long no call has been under way."""
        with self._lock:
            return 0.0 if self._open else time.monotonic() - self._last
