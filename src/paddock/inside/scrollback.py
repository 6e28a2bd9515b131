"""The recent output of a terminal, addressed by how many bytes came before."""

from __future__ import annotations

import threading
from collections import deque

KEEP = 1024 * 1024
PIECE = 64 * 1024
"""Up to this size, what comes is joined to what came before it: a megabyte of single keys is a few pieces."""
STDOUT, STDERR = 0x01, 0x02


class Scrollback:
    """A bounded buffer with one writer and readers that follow at their own pace."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._pieces: deque[tuple[int, bytearray]] = deque()
        self.start = 0
        self.end = 0
        self.finished = False

    def append(self, stream: int, data: bytes) -> None:
        with self.changed:
            if self._pieces and self._pieces[-1][0] == stream and len(self._pieces[-1][1]) + len(data) <= PIECE:
                self._pieces[-1][1].extend(data)
            else:
                self._pieces.append((stream, bytearray(data)))
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
        """Return what came after `offset`, one piece for each stretch of a stream, and where it really starts."""
        with self.changed:
            first = max(self.start, min(offset, self.end))
            position, found = self.end, deque[tuple[int, bytes]]()
            for stream, data in reversed(self._pieces):
                if position <= first:
                    break
                position -= len(data)
                found.appendleft((stream, bytes(memoryview(data)[max(0, first - position) :])))
        return first, _joined(found)


def _joined(pieces: deque[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    stretches: list[tuple[int, list[bytes]]] = []
    for stream, data in pieces:
        if stretches and stretches[-1][0] == stream:
            stretches[-1][1].append(data)
        else:
            stretches.append((stream, [data]))
    return [(stream, parts[0] if len(parts) == 1 else b"".join(parts)) for stream, parts in stretches]
