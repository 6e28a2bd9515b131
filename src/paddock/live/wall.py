"""Many screens in one stream: the newest picture of each, as far as the viewer keeps up."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import aclosing
from typing import Any

import structlog

from paddock.errors import Conflict, NotFound, PaddockError
from paddock.live.screens import Screens
from paddock.model.screens import Frame

LOOK_EVERY = 1.0
"""Seconds between two looks for sandboxes that have come."""
AGAIN_AFTER = 10.0
"""Seconds until a sandbox that could not be shown is tried again."""
log = structlog.get_logger()


class Wall:
    """One viewer's wall, open within `async with`."""

    def __init__(
        self, screens: Screens, tenant: str, sandboxes: Collection[str] | None, *, width: int, rate: float, most: int
    ) -> None:
        """`sandboxes` of None are all of the tenant's that have a screen, `most` of them."""
        self._screens = screens
        self._tenant = tenant
        self._wanted = None if sandboxes is None else tuple(dict.fromkeys(sandboxes))
        self._width = width
        self._rate = rate
        self._most = most
        self._watching: dict[str, asyncio.Task[None]] = {}
        self._not_before: dict[str, float] = {}
        self._pictures: dict[str, Frame] = {}
        self._words: dict[str, Mapping[str, Any]] = {}
        """What is to be said of each sandbox, the last only."""
        self._news = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Wall:
        if self._wanted is None:
            self._looking = asyncio.create_task(self._look())
        else:
            self._show(self._wanted)
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [task for task in (self._looking, *self._watching.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def choose(self, sandboxes: Collection[str] | None) -> None:
        """Show others from now on."""
        self._wanted = None if sandboxes is None else tuple(dict.fromkeys(sandboxes))
        if self._wanted is not None:
            if self._looking is not None:
                self._looking.cancel()
                self._looking = None
            for sandbox_id in set(self._watching) - set(self._wanted):
                self._watching.pop(sandbox_id).cancel()
                self._pictures.pop(sandbox_id, None)
            self._show(self._wanted)
        elif self._looking is None:
            self._looking = asyncio.create_task(self._look())

    async def messages(self) -> AsyncIterator[bytes | Mapping[str, Any]]:
        """What to send: bytes as they are, mappings as JSON. Never ends by itself."""
        while True:
            self._news.clear()
            while self._words or self._pictures:
                if self._words:
                    yield self._words.pop(next(iter(self._words)))
                if self._pictures:
                    sandbox_id = next(iter(self._pictures))
                    yield pack(sandbox_id, self._pictures.pop(sandbox_id))
            await self._news.wait()

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                shown = await self._screens.shown(self._tenant, self._most)
            except PaddockError as error:
                log.warning("sandboxes for a wall cannot be listed", error=error.message)
                shown = ()
            now = loop.time()
            self._not_before = {each: at for each, at in self._not_before.items() if each in shown}
            self._show([each for each in shown if self._not_before.get(each, 0.0) <= now])
            await asyncio.sleep(LOOK_EVERY)

    def _show(self, sandboxes: Collection[str]) -> None:
        for sandbox_id in sandboxes:
            if sandbox_id not in self._watching and len(self._watching) < self._most:
                self._watching[sandbox_id] = asyncio.create_task(self._watch(sandbox_id))

    async def _watch(self, sandbox_id: str) -> None:
        shown = False
        reason = "the server is stopping"
        try:
            frames = self._screens.watch(self._tenant, sandbox_id, width=self._width, rate=self._rate)
            async with aclosing(frames) as following:
                async for frame in following:
                    shown = True
                    # Put in anew, it waits its turn behind those that were there before.
                    self._pictures[sandbox_id] = frame
                    self._news.set()
        except (NotFound, Conflict) as error:
            reason = error.message
            # One without a screen gets none; it is looked at again in case it was only starting.
            self._not_before[sandbox_id] = asyncio.get_running_loop().time() + AGAIN_AFTER
        except PaddockError as error:
            reason = error.message
        self._watching.pop(sandbox_id, None)
        self._pictures.pop(sandbox_id, None)
        if shown or self._wanted is not None:
            self._words[sandbox_id] = {"type": "gone", "sandbox": sandbox_id, "reason": reason}
            self._news.set()


def pack(sandbox_id: str, frame: Frame) -> bytes:
    """A picture and what it shows: the length of a JSON header in four bytes, the header, the JPEG."""
    head = {
        "sandbox": sandbox_id,
        "sequence": frame.sequence,
        "width": frame.width,
        "height": frame.height,
        "at": frame.at,
    }
    header = json.dumps(head, separators=(",", ":")).encode()
    return b"".join((len(header).to_bytes(4, "big"), header, frame.data))
