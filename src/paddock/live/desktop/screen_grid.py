"""Streams many screens to one viewer: the newest picture of each, skipping pictures for slow viewers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import aclosing
from typing import Any

import structlog

from paddock.errors import Conflict, NotFound, PaddockError
from paddock.live.desktop.screen_streams import ScreenStreams
from paddock.model.screens import ScreenFrame

LIST_INTERVAL = 1.0
"""Seconds between two listings of the tenant's sandboxes."""
RETRY_DELAY = 10.0
"""Seconds before a sandbox that could not be shown is tried again."""
log = structlog.get_logger()


class ScreenGrid:
    """One viewer's grid of screens, active within `async with`."""

    def __init__(
        self,
        screens: ScreenStreams,
        tenant: str,
        sandboxes: Collection[str] | None,
        *,
        width: int,
        rate: float,
        max_screens: int,
    ) -> None:
        """`sandboxes` of None selects all of the tenant's with a screen, up to `max_screens`."""
        self._screens = screens
        self._tenant = tenant
        self._selected = None if sandboxes is None else tuple(dict.fromkeys(sandboxes))
        self._width = width
        self._rate = rate
        self._max_screens = max_screens
        self._watching: dict[str, asyncio.Task[None]] = {}
        self._retry_at: dict[str, float] = {}
        self._pictures: dict[str, ScreenFrame] = {}
        self._notices: dict[str, Mapping[str, Any]] = {}
        """The latest notice about each sandbox."""
        self._changed = asyncio.Event()
        self._follow_task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> ScreenGrid:
        if self._selected is None:
            self._follow_task = asyncio.create_task(self._follow_tenant())
        else:
            self._start_watching(self._selected)
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [task for task in (self._follow_task, *self._watching.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def select_sandboxes(self, sandboxes: Collection[str] | None) -> None:
        """Change the selection of sandboxes."""
        self._selected = None if sandboxes is None else tuple(dict.fromkeys(sandboxes))
        if self._selected is not None:
            if self._follow_task is not None:
                self._follow_task.cancel()
                self._follow_task = None
            for sandbox_id in set(self._watching) - set(self._selected):
                self._watching.pop(sandbox_id).cancel()
                self._pictures.pop(sandbox_id, None)
            self._start_watching(self._selected)
        elif self._follow_task is None:
            self._follow_task = asyncio.create_task(self._follow_tenant())

    async def messages(self) -> AsyncIterator[bytes | Mapping[str, Any]]:
        """Yield messages to send: bytes as they are, mappings as JSON. Never ends by itself."""
        while True:
            self._changed.clear()
            while self._notices or self._pictures:
                if self._notices:
                    yield self._notices.pop(next(iter(self._notices)))
                if self._pictures:
                    sandbox_id = next(iter(self._pictures))
                    yield encode_grid_frame(sandbox_id, self._pictures.pop(sandbox_id))
            await self._changed.wait()

    async def _follow_tenant(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                shown = await self._screens.running_sandbox_ids(self._tenant, self._max_screens)
            except PaddockError as error:
                log.warning("cannot list sandboxes for screen grid", error=error.message)
                shown = ()
            now = loop.time()
            self._retry_at = {each: at for each, at in self._retry_at.items() if each in shown}
            self._start_watching([each for each in shown if self._retry_at.get(each, 0.0) <= now])
            await asyncio.sleep(LIST_INTERVAL)

    def _start_watching(self, sandboxes: Collection[str]) -> None:
        for sandbox_id in sandboxes:
            if sandbox_id not in self._watching and len(self._watching) < self._max_screens:
                self._watching[sandbox_id] = asyncio.create_task(self._watch(sandbox_id))

    async def _watch(self, sandbox_id: str) -> None:
        shown = False
        reason = "the server is stopping"
        try:
            frames = self._screens.watch_screen(self._tenant, sandbox_id, width=self._width, rate=self._rate)
            async with aclosing(frames) as following:
                async for frame in following:
                    shown = True
                    # Inserted last, so that it is sent after older pictures of other sandboxes.
                    self._pictures[sandbox_id] = frame
                    self._changed.set()
        except (NotFound, Conflict) as error:
            reason = error.message
            # A sandbox without a screen is retried later, in case it was only starting.
            self._retry_at[sandbox_id] = asyncio.get_running_loop().time() + RETRY_DELAY
        except PaddockError as error:
            reason = error.message
        self._watching.pop(sandbox_id, None)
        self._pictures.pop(sandbox_id, None)
        if shown or self._selected is not None:
            self._notices[sandbox_id] = {"type": "gone", "sandbox": sandbox_id, "reason": reason}
            self._changed.set()


def encode_grid_frame(sandbox_id: str, frame: ScreenFrame) -> bytes:
    """Encode a frame: the length of a JSON header in four bytes, the header, the JPEG."""
    fields = {
        "sandbox": sandbox_id,
        "sequence": frame.sequence,
        "width": frame.width,
        "height": frame.height,
        "at": frame.at,
    }
    header = json.dumps(fields, separators=(",", ":")).encode()
    return b"".join((len(header).to_bytes(4, "big"), header, frame.data))
