"""Streams pictures of screens as they change, with one shared reader per sandbox, width and rate."""

from __future__ import annotations

import asyncio
import bisect
import math
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import structlog

from paddock.errors import Conflict, InvalidInput, NotFound, PaddockError, SandboxError, SandboxGone
from paddock.fleet.display_ready import DISPLAY_SERVICE
from paddock.fleet.fleet import Fleet
from paddock.live.throttled_events import ThrottledEvents
from paddock.model.sandbox import Sandbox, SandboxState
from paddock.model.screens import ScreenFrame

WIDTHS = (160, 320, 480, 640, 960, 1280, 1920)
"""Widths of readers: viewers with similar widths share a reader."""
JPEG_QUALITY = 60
MAX_PICTURE_SIZE = 4 * 2**20
"""Bytes of a picture."""
MAX_SIDE = 16384
JPEG_MAGIC = b"\xff\xd8\xff"
RETRY_DELAY = 0.25
MAX_RETRY_DELAY = 5.0
CHANGE_EVENT_INTERVAL = 10.0
"""Seconds between two change events of a watched screen."""
log = structlog.get_logger()


class ScreenStreams:
    """Screen streams that have viewers."""

    def __init__(self, fleet: Fleet, events: ThrottledEvents | None = None, *, max_rate: float = 5.0) -> None:
        """`max_rate` limits the pictures per second of every viewer."""
        self._fleet = fleet
        self._events = events
        self._max_rate = max_rate
        self._readers: dict[tuple[str, int, float], ScreenReader] = {}

    async def watch_screen(
        self, tenant: str, sandbox_id: str, *, width: int = 320, rate: float = 1.0
    ) -> AsyncGenerator[ScreenFrame, None]:
        """Yield the newest picture of a screen and then each change; slow viewers skip pictures.

        Raises `SandboxNotFound`, `NotFound` for a sandbox without a screen, `Conflict` for one that does not run, and
        `SandboxGone` when the sandbox ends.
        """
        sandbox = await self._running(tenant, sandbox_id)
        rate = min(rate, self._max_rate)
        # Readers have one of two speeds, so that there are few of them.
        reader_rate = 1.0 if rate <= 1.0 else self._max_rate
        key = sandbox.id, nearest_stream_width(width), reader_rate
        reader = self._readers.get(key)
        if reader is None or reader.problem is not None:
            reader = self._readers[key] = ScreenReader(self._fleet, sandbox, key[1], reader_rate, self._events)
        reader.viewers += 1
        try:
            async for frame in reader.follow_frames(1.0 / rate):
                yield frame
        finally:
            reader.viewers -= 1
            if not reader.viewers:
                if self._readers.get(key) is reader:
                    del self._readers[key]
                await reader.close()

    async def running_sandbox_ids(self, tenant: str, limit: int) -> Sequence[str]:
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


class ScreenReader:
    """Reads one screen at one size while it has viewers, and reconnects when the display restarts."""

    def __init__(
        self,
        fleet: Fleet,
        sandbox: Sandbox,
        width: int,
        rate: float,
        events: ThrottledEvents | None = None,
        *,
        quality: int = JPEG_QUALITY,
        largest: int = MAX_PICTURE_SIZE,
    ) -> None:
        """A `width` of 0 means the screen's own width."""
        self.viewers = 0
        self.problem: PaddockError | None = None
        """Error that ended the stream."""
        self._fleet = fleet
        self._sandbox = sandbox
        self._width = width
        # Sandboxes take whole numbers of pictures per second.
        self._rate = max(1, math.ceil(rate))
        self._quality = quality
        self._largest = largest
        self._events = events
        self._published_at = float("-inf")
        self._latest: ScreenFrame | None = None
        self._count = 0
        self._changed = asyncio.Event()
        self._work = asyncio.create_task(self._run(), name=f"screen {sandbox.id}")

    async def follow_frames(self, pause: float) -> AsyncGenerator[ScreenFrame, None]:
        """Yield the newest picture after each change, at least `pause` seconds apart."""
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
                await self._changed.wait()

    async def close(self) -> None:
        self._fail(SandboxGone("the server is stopping"))
        self._work.cancel()
        await asyncio.gather(self._work, return_exceptions=True)

    async def _run(self) -> None:
        pause = RETRY_DELAY
        try:
            inside = self._fleet.client(self._sandbox)
            if not any(each.get("name") == DISPLAY_SERVICE for each in await inside.services()):
                raise NotFound(f"sandbox {self._sandbox.id} has no screen; create one of a kind with a screen")
            while True:
                before = self._count
                try:
                    await self._read()
                except (NotFound, InvalidInput, SandboxError, Conflict) as error:
                    log.debug("cannot read screen; will retry", sandbox=self._sandbox.id, error=error.message)
                pause = RETRY_DELAY if self._count > before else min(MAX_RETRY_DELAY, pause * 2)
                state = (await self._fleet.sandboxes.get(self._sandbox.id)).state
                if state not in (SandboxState.RUNNING, SandboxState.PAUSED):
                    raise SandboxGone("the sandbox has ended")
                await asyncio.sleep(pause)
        except NotFound as error:
            self._fail(error if self._latest is None else SandboxGone("the sandbox has ended"))
        except PaddockError as error:
            self._fail(error)
        except Exception:
            log.exception("screen reader failed", sandbox=self._sandbox.id)
            self._fail(SandboxError("the screen cannot be read; see the server's log"))

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        frames = self._fleet.client(self._sandbox).frames(self._width, self._quality, self._rate)
        async with aclosing(frames) as following:
            async for frame in following:
                if not is_valid_screen_frame(frame, self._largest):
                    raise SandboxError("the sandbox sent an invalid picture")
                if self._latest is None or frame.data != self._latest.data:
                    self._latest = frame
                    self._count += 1
                    self._wake_followers()
                    self._publish_change(loop.time())
                # A sandbox that sends faster than requested is not read faster.
                await asyncio.sleep(0.5 / self._rate)

    def _publish_change(self, now: float) -> None:
        if self._events is not None and self._count > 1 and now - self._published_at >= CHANGE_EVENT_INTERVAL:
            self._published_at = now
            self._events.publish_screen_change(self._sandbox, "timer")

    def _fail(self, problem: PaddockError) -> None:
        if self.problem is None:
            self.problem = problem
        self._wake_followers()

    def _wake_followers(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def is_valid_screen_frame(frame: ScreenFrame, largest: int = MAX_PICTURE_SIZE) -> bool:
    """Tell whether a frame looks like a picture of acceptable size; browsers validate the rest."""
    sides = 0 < frame.width <= MAX_SIDE and 0 < frame.height <= MAX_SIDE
    return sides and len(frame.data) <= largest and frame.data.startswith(JPEG_MAGIC)


def nearest_stream_width(width: int) -> int:
    """Return the reader width for a requested width."""
    return WIDTHS[min(bisect.bisect_left(WIDTHS, width), len(WIDTHS) - 1)]
