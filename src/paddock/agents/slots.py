"""A place among the turns that run at once, which a turn gives up while it waits for a person."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Slot:
    """One turn's place. Entered when there is room, and left once, wherever the turn is then."""

    def __init__(self, slots: asyncio.Semaphore) -> None:
        self._slots = slots
        self._taking = asyncio.Lock()
        self._held = False
        self._over = False
        self._waiting = 0

    async def __aenter__(self) -> None:
        await self._take()

    async def __aexit__(self, *exc: object) -> None:
        self._over = True
        self._leave()

    @asynccontextmanager
    async def aside(self) -> AsyncIterator[None]:
        """Let others go first; who comes back waits for room, unless another part of the turn still waits."""
        self._waiting += 1
        self._leave()
        try:
            yield
        finally:
            self._waiting -= 1
        if not self._waiting:
            await self._take()

    async def _take(self) -> None:
        async with self._taking:
            if self._held or self._over:
                return
            await self._slots.acquire()
            self._held = True

    def _leave(self) -> None:
        if self._held:
            self._held = False
            self._slots.release()
