"""Pictures of screens as they change: one reader for each box, however many look."""

from __future__ import annotations

import asyncio
import bisect
import math
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import structlog

from paddock.errors import BoxError, BoxGone, Conflict, InvalidInput, NotFound, PaddockError
from paddock.fleet.displays import DISPLAY
from paddock.fleet.fleet import Fleet
from paddock.live.updates import Updates
from paddock.model.sandbox import Sandbox, SandboxState
from paddock.model.screens import Frame

WIDTHS = (160, 320, 480, 640, 960, 1280, 1920)
"""Widths that readers have: viewers who ask for nearly the same share one."""
QUALITY = 60
LARGEST = 4 * 2**20
"""Bytes of a picture."""
LARGEST_SIDE = 16384
JPEG = b"\xff\xd8\xff"
AGAIN_AFTER = 0.25
LONGEST_PAUSE = 5.0
TELL_EVERY = 10.0
"""Seconds between two events that say that a watched screen has changed."""
log = structlog.get_logger()


class Screens:
    """The screens that somebody looks at."""

    def __init__(self, fleet: Fleet, updates: Updates | None = None, *, most: float = 5.0) -> None:
        """`most` is the largest number of pictures a second that anybody is shown."""
        self._fleet = fleet
        self._updates = updates
        self._most = most
        self._readers: dict[tuple[str, int, float], Reader] = {}

    async def watch(
        self, tenant: str, sandbox_id: str, *, width: int = 320, rate: float = 1.0
    ) -> AsyncGenerator[Frame, None]:
        """The newest picture of a screen, and each time it has changed another; who is slow misses some.

        Raises `SandboxNotFound`, `NotFound` for a sandbox without a screen, `Conflict` for one that does not run, and
        in the end `BoxGone`.
        """
        sandbox = await self._running(tenant, sandbox_id)
        rate = min(rate, self._most)
        # Readers have one of two speeds, so that there are few of them.
        speed = 1.0 if rate <= 1.0 else self._most
        key = sandbox.id, nearest(width), speed
        reader = self._readers.get(key)
        if reader is None or reader.problem is not None:
            reader = self._readers[key] = Reader(self._fleet, sandbox, key[1], speed, self._updates)
        reader.viewers += 1
        try:
            async for frame in reader.follow(1.0 / rate):
                yield frame
        finally:
            reader.viewers -= 1
            if not reader.viewers:
                if self._readers.get(key) is reader:
                    del self._readers[key]
                await reader.close()

    async def shown(self, tenant: str, limit: int) -> Sequence[str]:
        """Ids of the running sandboxes of a tenant, newest first."""
        found, _ = await self._fleet.list(tenant, states=[SandboxState.RUNNING], page_size=limit)
        return [sandbox.id for sandbox in found]

    async def close(self) -> None:
        for reader in list(self._readers.values()):
            await reader.close()

    async def _running(self, tenant: str, sandbox_id: str) -> Sandbox:
        sandbox = await self._fleet.get(tenant, sandbox_id)
        if sandbox.state is not SandboxState.RUNNING:
            raise Conflict(f"sandbox {sandbox_id} is {sandbox.state}, not {SandboxState.RUNNING}")
        return sandbox


class Reader:
    """Reads one screen at one size, as long as anybody looks; after a display has died, the next one."""

    def __init__(
        self,
        fleet: Fleet,
        sandbox: Sandbox,
        width: int,
        rate: float,
        updates: Updates | None = None,
        *,
        quality: int = QUALITY,
        largest: int = LARGEST,
    ) -> None:
        """A `width` of 0 is the screen's own."""
        self.viewers = 0
        self.problem: PaddockError | None = None
        """Why there is nothing more to come."""
        self._fleet = fleet
        self._sandbox = sandbox
        self._width = width
        # Boxes count in whole pictures a second.
        self._rate = max(1, math.ceil(rate))
        self._quality = quality
        self._largest = largest
        self._updates = updates
        self._told_at = float("-inf")
        self._latest: Frame | None = None
        self._count = 0
        self._news = asyncio.Event()
        self._work = asyncio.create_task(self._run(), name=f"screen {sandbox.id}")

    async def follow(self, pause: float) -> AsyncGenerator[Frame, None]:
        """The newest picture whenever there is another, with at least a pause in between."""
        loop = asyncio.get_running_loop()
        seen = 0
        while True:
            if self._latest is not None and self._count > seen:
                seen = self._count
                due = loop.time() + pause
                yield self._latest
                await asyncio.sleep(due - loop.time())
            elif self.problem is not None:
                raise self.problem
            else:
                await self._news.wait()

    async def close(self) -> None:
        self._end(BoxGone("the server is stopping"))
        self._work.cancel()
        await asyncio.gather(self._work, return_exceptions=True)

    async def _run(self) -> None:
        pause = AGAIN_AFTER
        try:
            inside = self._fleet.client(self._sandbox)
            if not any(each.get("name") == DISPLAY for each in await inside.services()):
                raise NotFound(f"sandbox {self._sandbox.id} has no screen; make one of a kind that has")
            while True:
                before = self._count
                try:
                    await self._read()
                except (NotFound, InvalidInput, BoxError, Conflict) as error:
                    log.debug("a screen cannot be read", sandbox=self._sandbox.id, error=error.message)
                pause = AGAIN_AFTER if self._count > before else min(LONGEST_PAUSE, pause * 2)
                state = (await self._fleet.sandboxes.get(self._sandbox.id)).state
                if state not in (SandboxState.RUNNING, SandboxState.PAUSED):
                    raise BoxGone("the sandbox has ended")
                await asyncio.sleep(pause)
        except NotFound as error:
            self._end(error if self._latest is None else BoxGone("the sandbox has ended"))
        except PaddockError as error:
            self._end(error)
        except Exception:
            log.exception("a screen could not be read", sandbox=self._sandbox.id)
            self._end(BoxError("its screen cannot be read; the server's log says more"))

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        frames = self._fleet.client(self._sandbox).frames(self._width, self._quality, self._rate)
        async with aclosing(frames) as following:
            async for frame in following:
                if not sound(frame, self._largest):
                    raise BoxError("the box sends what is no picture")
                if self._latest is None or frame.data != self._latest.data:
                    self._latest = frame
                    self._count += 1
                    self._ring()
                    self._tell(loop.time())
                # A box that sends more than was asked for is read no faster for that.
                await asyncio.sleep(0.5 / self._rate)

    def _tell(self, now: float) -> None:
        if self._updates is not None and self._count > 1 and now - self._told_at >= TELL_EVERY:
            self._told_at = now
            self._updates.screen(self._sandbox, "timer")

    def _end(self, problem: PaddockError) -> None:
        if self.problem is None:
            self.problem = problem
        self._ring()

    def _ring(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


def sound(frame: Frame, largest: int = LARGEST) -> bool:
    """Whether something may be passed on as a picture; browsers look closer."""
    sides = 0 < frame.width <= LARGEST_SIDE and 0 < frame.height <= LARGEST_SIDE
    return sides and len(frame.data) <= largest and frame.data.startswith(JPEG)


def nearest(width: int) -> int:
    """The width that readers have for a width somebody wants."""
    return WIDTHS[min(bisect.bisect_left(WIDTHS, width), len(WIDTHS) - 1)]
