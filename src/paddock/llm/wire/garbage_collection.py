"""Free the body of a failed request that is still referred to in a cycle, such as of an error and a stack frame.

The collector runs rarely, since it counts objects and not their size.
"""

from __future__ import annotations

import asyncio
import gc

LARGE_BODY_BYTES = 2**20
COLLECTION_DELAY = 0.05
"""Seconds after a request, in which it ends."""
_NEWEST, _YOUNG = 0, 1
_young_collection: asyncio.TimerHandle | None = None


def schedule_garbage_collection(size: int) -> None:
    """Collect the newest objects in a moment if a request's body was large, and young ones once a second."""
    global _young_collection
    if size <= LARGE_BODY_BYTES:
        return
    loop = asyncio.get_running_loop()
    loop.call_later(COLLECTION_DELAY, gc.collect, _NEWEST)
    if _young_collection is None or _young_collection.when() < loop.time():
        _young_collection = loop.call_later(1.0, gc.collect, _YOUNG)
