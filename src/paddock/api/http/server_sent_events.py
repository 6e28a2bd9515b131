"""Server-sent events: resume positions and heartbeats."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import TypeVar

from paddock.errors import InvalidInput

HEARTBEAT_SECONDS = 15.0
MAX_RESUME_POSITION = 2**63 - 1
STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
STREAM_OPENED = b": follows\n\n"
HEARTBEAT_COMMENT = b": still here\n\n"
T = TypeVar("T")
AfterPosition = TypeVar("AfterPosition", int, int | None)


async def with_heartbeats(source: AsyncIterator[T], silence: float | None = None) -> AsyncIterator[T | None]:
    """Yield the items of `source`, and `None` after each silence. Closing it closes the source."""
    async with aclosing(source) as following:  # type: ignore[type-var]
        upcoming: asyncio.Task[T] | None = None
        try:
            while True:
                upcoming = upcoming or asyncio.ensure_future(anext(following))
                done, _ = await asyncio.wait((upcoming,), timeout=silence or HEARTBEAT_SECONDS)
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


def parse_resume_position(
    last_event_id: str | None, after: AfterPosition, position_name: str, field: str = "Last-Event-ID"
) -> int | AfterPosition:
    """Return the position to resume from: `Last-Event-ID` if sent, else `after`."""
    if not last_event_id:
        return after
    if not (last_event_id.isascii() and last_event_id.isdigit() and int(last_event_id) <= MAX_RESUME_POSITION):
        raise InvalidInput(f"{field}: give the {position_name}, which is a whole number")
    return int(last_event_id)
