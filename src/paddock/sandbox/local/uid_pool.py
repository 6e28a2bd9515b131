"""Pool of host uids: each sandbox gets its own."""

from __future__ import annotations

import threading

from paddock.errors import Unavailable


class UidPool:
    """Assigns uids of a range to sandboxes, least recently used first."""

    def __init__(self, base: int, count: int, taken: set[int]) -> None:
        self._base = base
        self._count = count
        self._taken = set(taken)
        self._next = max(taken, default=base - 1) + 1 - base
        self._lock = threading.Lock()

    def acquire(self) -> int:
        with self._lock:
            for step in range(self._count):
                uid = self._base + (self._next + step) % self._count
                if uid not in self._taken:
                    self._next = uid - self._base + 1
                    self._taken.add(uid)
                    return uid
        raise Unavailable(f"all {self._count} uids for sandboxes are in use; raise local.uid_count")

    def release(self, uid: int | None) -> None:
        with self._lock:
            self._taken.discard(uid or -1)
