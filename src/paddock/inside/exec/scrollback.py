"""The recent output of a terminal, addressed by byte offset."""

from __future__ import annotations

import threading
from collections import deque

SCROLLBACK_BYTES = 1024 * 1024
MAX_PIECE = 64 * 1024
"""Appended output is merged into pieces of up to this size."""
STDOUT, STDERR = 0x01, 0x02


class TerminalScrollback:
    """A bounded buffer with one writer and readers at their own pace."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._pieces: deque[tuple[int, bytearray]] = deque()
        self.start = 0
        self.end = 0
        self.finished = False

    def append(self, stream: int, data: bytes) -> None:
        with self.changed:
            if self._pieces and self._pieces[-1][0] == stream and len(self._pieces[-1][1]) + len(data) <= MAX_PIECE:
                self._pieces[-1][1].extend(data)
            else:
                self._pieces.append((stream, bytearray(data)))
            self.end += len(data)
            while self.end - self.start - len(self._pieces[0][1]) >= SCROLLBACK_BYTES:
                self.start += len(self._pieces.popleft()[1])
            self.changed.notify_all()

    def finish(self) -> None:
        with self.changed:
            self.finished = True
            self.changed.notify_all()

    def wait_beyond(self, offset: int, timeout: float, cancelled: threading.Event) -> bool:
        """Wait for output after `offset`; False when the output has ended before it.

        Setting `cancelled` must be followed by notifying `changed`.
        """
        with self.changed:
            self.changed.wait_for(lambda: self.finished or self.end > offset or cancelled.is_set(), timeout)
            return self.end > offset or not self.finished

    def output_since(self, offset: int) -> tuple[int, list[tuple[int, bytes]]]:
        """Return the offset of the first byte still kept from `offset` on, and the output as (stream, bytes) pieces."""
        with self.changed:
            first = max(self.start, min(offset, self.end))
            position, found = self.end, deque[tuple[int, bytes]]()
            for stream, data in reversed(self._pieces):
                if position <= first:
                    break
                position -= len(data)
                found.appendleft((stream, bytes(memoryview(data)[max(0, first - position) :])))
        return first, _join_adjacent(found)


def _join_adjacent(pieces: deque[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    joined: list[tuple[int, list[bytes]]] = []
    for stream, data in pieces:
        if joined and joined[-1][0] == stream:
            joined[-1][1].append(data)
        else:
            joined.append((stream, [data]))
    return [(stream, parts[0] if len(parts) == 1 else b"".join(parts)) for stream, parts in joined]
