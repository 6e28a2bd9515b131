"""Cancel work when its client disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import Request

T = TypeVar("T")


async def cancel_on_disconnect(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`; cancel it when the client disconnects."""
    task = asyncio.ensure_future(work)
    disconnected = asyncio.ensure_future(_wait_for_disconnect(request))
    try:
        await asyncio.wait((task, disconnected), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise asyncio.CancelledError
        return task.result()
    finally:
        for each in (task, disconnected):
            each.cancel()
        await asyncio.gather(task, disconnected, return_exceptions=True)


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
