"""Divides long work on the event loop: servers choose how long their lists are."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

SLICE_SECONDS = 0.01
"""Seconds of work after which other tasks run."""
T = TypeVar("T")


async def paced(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield items, and let other tasks run from time to time."""
    began = time.perf_counter()
    for item in items:
        yield item
        if time.perf_counter() - began > SLICE_SECONDS:
            await asyncio.sleep(0)
            began = time.perf_counter()
