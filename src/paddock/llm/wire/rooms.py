"""How much of large requests may be held in memory at once, by one listener and by all."""

from __future__ import annotations

HELD_BY_ONE = 128 * 2**20
HELD_BY_ALL = 1024 * 2**20
"""Bytes of large requests that are held at once, of one sandbox or tenant and of all."""
UNCOUNTED = 64 * 1024
"""Bytes of each request that are not counted: connections are bounded too, and most requests are no longer."""


class Room:
    """Bytes that may still be taken; what is taken here is taken from the larger room around it as well."""

    __slots__ = ("_around", "free")

    def __init__(self, size: int, around: Room | None = None) -> None:
        self.free = size
        self._around = around

    def claim(self, size: int) -> bool:
        """Take some if there is enough."""
        if self.free < size or (self._around is not None and not self._around.claim(size)):
            return False
        self.free -= size
        return True

    def release(self, size: int) -> None:
        """Give back what was taken."""
        self.free += size
        if self._around is not None:
            self._around.release(size)


class Held:
    """What one request has taken of a room."""

    __slots__ = ("_room", "_taken", "size")

    def __init__(self, room: Room) -> None:
        self._room = room
        self._taken = 0
        self.size = 0

    def grow(self, size: int) -> bool:
        """Make it so much larger, if there is room."""
        self.size += size
        wanted = self.size - UNCOUNTED - self._taken
        if wanted <= 0:
            return True
        if not self._room.claim(wanted):
            return False
        self._taken += wanted
        return True

    def release(self) -> None:
        """It is over. Idempotent."""
        if self._taken:
            self._room.release(self._taken)
        self._taken = self.size = 0
