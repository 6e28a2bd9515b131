"""Concurrency slot of a turn, which the turn gives up while it waits for a person."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class TurnSlot:
    """Async context manager that holds one slot of the semaphore for a turn.

    Entering waits for a free slot; leaving releases it, wherever the turn is.
    """

    def __init__(self, slots: asyncio.Semaphore) -> None:
        self._slots = slots
        self._acquire_lock = asyncio.Lock()
        self._held = False
        self._closed = False
        self._yield_count = 0

    async def __aenter__(self) -> None:
        await self._acquire()

    async def __aexit__(self, *exc: object) -> None:
        self._closed = True
        self._release()

    @asynccontextmanager
    async def yield_slot(self) -> AsyncIterator[None]:
        """Release the slot while the block runs, then acquire it again.

        If several parts of the turn wait, the last one to finish acquires the slot.
        """
        self._yield_count += 1
        self._release()
        try:
            yield
        finally:
            self._yield_count -= 1
        if not self._yield_count:
            await self._acquire()

    async def _acquire(self) -> None:
        async with self._acquire_lock:
            if self._held or self._closed:
                return
            await self._slots.acquire()
            self._held = True

    def _release(self) -> None:
        if self._held:
            self._held = False
            self._slots.release()
