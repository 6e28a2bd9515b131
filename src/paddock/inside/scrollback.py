"""The recent output of a terminal, addressed by how many bytes came before."""

from __future__ import annotations

import threading
from collections import deque

KEEP = 1024 * 1024
STDOUT, STDERR = 0x01, 0x02


class Scrollback:
    """A bounded buffer with one writer and readers that follow at their own pace."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._pieces: deque[tuple[int, bytes]] = deque()
        self.start = 0
        self.end = 0
        self.finished = False

    def append(self, stream: int, data: bytes) -> None:
        with self.changed:
            self._pieces.append((stream, data))
            self.end += len(data)
            while self.end - self.start - len(self._pieces[0][1]) >= KEEP:
                self.start += len(self._pieces.popleft()[1])
            self.changed.notify_all()

    def finish(self) -> None:
        with self.changed:
            self.finished = True
            self.changed.notify_all()

    def wait_beyond(self, offset: int, timeout: float, cancelled: threading.Event) -> bool:
        """Wait for output after `offset`; False when there is none and will be none.

        Whoever sets `cancelled` notifies `changed` as well.
        """
        with self.changed:
            self.changed.wait_for(lambda: self.finished or self.end > offset or cancelled.is_set(), timeout)
            return self.end > offset or not self.finished

    def since(self, offset: int) -> tuple[int, list[tuple[int, bytes]]]:
        """Return the pieces after `offset`, and the offset they really start at."""
        with self.changed:
            position, found = self.start, []
            first = max(self.start, min(offset, self.end))
            for stream, data in self._pieces:
                if position + len(data) > first:
                    found.append((stream, data[max(0, first - position) :]))
                position += len(data)
            return first, found
