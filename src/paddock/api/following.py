"""What goes on, told as server-sent events: how a client comes back to its place, and signs of life in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import TypeVar

from paddock.errors import InvalidInput

HEARTBEAT = 15.0
LARGEST = 2**63 - 1
STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
FOLLOWS = b": follows\n\n"
STILL_HERE = b": still here\n\n"
T = TypeVar("T")
After = TypeVar("After", int, int | None)


async def alive(source: AsyncIterator[T], silence: float | None = None) -> AsyncIterator[T | None]:
    """What a source gives, and nothing whenever it has been silent for a while. Close it, and the source is closed."""
    async with aclosing(source) as following:  # type: ignore[type-var]
        upcoming: asyncio.Task[T] | None = None
        try:
            while True:
                upcoming = upcoming or asyncio.ensure_future(anext(following))
                done, _ = await asyncio.wait((upcoming,), timeout=silence or HEARTBEAT)
                if not done:
                    yield None
                    continue
                try:
                    item = upcoming.result()
                except StopAsyncIteration:
                    return
                upcoming = None
                yield item
        finally:
            if upcoming is not None:
                upcoming.cancel()
                await asyncio.gather(upcoming, return_exceptions=True)


def place(last_event_id: str | None, after: After, what: str, field: str = "Last-Event-ID") -> int | After:
    """Where to go on: after the event the client saw last, or where it asks for."""
    if not last_event_id:
        return after
    if not (last_event_id.isascii() and last_event_id.isdigit() and int(last_event_id) <= LARGEST):
        raise InvalidInput(f"{field}: give the {what}, which is a whole number")
    return int(last_event_id)
