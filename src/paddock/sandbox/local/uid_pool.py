"""Pools of host uids: each sandbox gets its own, or a range of its own in root mode."""

from __future__ import annotations

import threading

from paddock.errors import Unavailable


class UidPool:
    """Assigns uids of a range to sandboxes, least recently used first.

    With a `size`, each sandbox gets so many uids from the returned one on.
    """

    def __init__(self, base: int, count: int, taken: set[int], size: int = 1, setting: str = "local.uid_count") -> None:
        self._base = base
        self._count = count
        self._taken = set(taken)
        self._size = size
        self._setting = setting
        self._next = (max(taken, default=base - size) - base) // size + 1
        self._lock = threading.Lock()

    def acquire(self) -> int:
        with self._lock:
            for step in range(self._count):
                number = (self._next + step) % self._count
                uid = self._base + number * self._size
                if uid not in self._taken:
                    self._next = number + 1
                    self._taken.add(uid)
                    return uid
        uids = "uids" if self._size == 1 else f"ranges of {self._size} uids"
        raise Unavailable(f"all {self._count} {uids} for sandboxes are in use; raise {self._setting}")

    def release(self, uid: int | None) -> None:
        with self._lock:
            self._taken.discard(uid or -1)
