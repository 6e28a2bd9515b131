"""Cancels a raw ASGI handler when its client disconnects."""

from __future__ import annotations

import asyncio

from starlette.types import Receive

DISCONNECT_WATCH_DELAY = 0.05
"""Seconds before watching for a disconnect; most requests are answered sooner."""


class DisconnectWatch:
    """Cancels the current task when the client disconnects. Starts to watch after a short delay."""

    def __init__(self, receive: Receive) -> None:
        self.disconnected = False
        self._receive = receive
        self._owner = asyncio.current_task()
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(DISCONNECT_WATCH_DELAY, self._start)

    def _start(self) -> None:
        self._task = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.disconnected = True
        if self._owner is not None:
            self._owner.cancel()

    async def stop(self) -> None:
        self._timer.cancel()
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
