"""Thread with an event loop of its own, on which connections of sandboxes are relayed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")


class RelayThread:
    """A thread with an event loop for connections of sandboxes."""

    def __init__(self, server_loop: asyncio.AbstractEventLoop) -> None:
        self._server_loop = server_loop
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network-relay", daemon=True)
        self._thread.start()

    def call(self, function: Callable[..., None], *arguments: Any) -> None:
        self._loop.call_soon_threadsafe(function, *arguments)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the thread and return its result."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def run_function(self, function: Callable[[], T]) -> T:
        """Call a function on the thread and return its result."""

        async def call() -> T:
            return function()

        return await self.run(call())

    def call_server(self, function: Callable[..., None], *arguments: Any) -> None:
        with suppress(RuntimeError):  # The server's loop may be closed already.
            self._server_loop.call_soon_threadsafe(function, *arguments)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
