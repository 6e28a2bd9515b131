"""Tells of what happens on screens and of what tools do, never more often than somebody can use it.

Boxes call tools as often as they like, so what is written for each is bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from paddock.errors import PaddockError
from paddock.events.log import EventLog
from paddock.model.events import EventType, sandbox_stream
from paddock.model.sandbox import Sandbox

SCREEN_EVERY = 1.0
"""Seconds between two events that say that a screen has changed."""
CALLS_A_SECOND = 10.0
CALLS_AT_ONCE = 50
"""Calls that are told of singly before `CALLS_A_SECOND` counts."""
MOST_PATHS = 50
LONGEST_PATH = 4096
LONGEST_PATHS = 8192
"""Characters of all paths in one event."""
LONGEST_NAME = 128
MOST_WAITING = 1000
"""Events that are not written yet; while the disk does not take them, others are left out."""
log = structlog.get_logger()


@dataclass
class _Told:
    """What has been told of one sandbox."""

    credit: float = CALLS_AT_ONCE
    files_credit: float = CALLS_AT_ONCE
    counted_at: float = 0.0
    files_at: float = 0.0
    left_out: int = 0
    screen_at: float = float("-inf")
    screen_due: asyncio.TimerHandle | None = None
    screen: tuple[Sandbox, dict[str, Any]] | None = field(default=None, repr=False)


class Updates:
    """Appends events behind the backs of those who cause them: a click does not wait for the disk."""

    def __init__(self, events: EventLog) -> None:
        self._events = events
        self._told: dict[str, _Told] = {}
        self._writing: set[asyncio.Task[None]] = set()

    def called(self, sandbox: Sandbox, name: str, seconds: float, *, failed: bool) -> None:
        """A tool was called. Of a flood only some calls are told singly, and how many were left out before."""
        told = self._of(sandbox.id)
        now = asyncio.get_running_loop().time()
        told.credit = min(CALLS_AT_ONCE, told.credit + (now - told.counted_at) * CALLS_A_SECOND)
        told.counted_at = now
        if told.credit < 1:
            told.left_out += 1
            return
        told.credit -= 1
        data: dict[str, Any] = {"name": name[:LONGEST_NAME], "seconds": round(seconds, 4), "failed": failed}
        if told.left_out:
            data["left_out"], told.left_out = told.left_out, 0
        self._write(sandbox, EventType.TOOL_CALLED, data)

    def wrote(self, sandbox: Sandbox, tool: str, paths: Sequence[str]) -> None:
        """A tool has written files. Of a flood only some are told."""
        told = self._of(sandbox.id)
        now = asyncio.get_running_loop().time()
        told.files_credit = min(CALLS_AT_ONCE, told.files_credit + (now - told.files_at) * CALLS_A_SECOND)
        told.files_at = now
        if paths and told.files_credit >= 1:
            told.files_credit -= 1
            shown, left = [], LONGEST_PATHS
            for path in paths[:MOST_PATHS]:
                shown.append(path[:LONGEST_PATH])
                left -= len(shown[-1])
                if left <= 0:
                    break
            self._write(sandbox, EventType.FILE_CHANGED, {"tool": tool[:LONGEST_NAME], "paths": shown})

    def screen(
        self,
        sandbox: Sandbox,
        cause: str,
        *,
        etag: str | None = None,
        width: int | None = None,
        height: int | None = None,
    ) -> None:
        """The screen may have changed. At most one event a second says so, and the last change is always told."""
        told = self._of(sandbox.id)
        data = {"etag": etag, "width": width, "height": height, "cause": cause[:LONGEST_NAME]}
        now = asyncio.get_running_loop().time()
        if told.screen_due is None and now - told.screen_at >= SCREEN_EVERY:
            told.screen_at = now
            self._write(sandbox, EventType.SCREENSHOT_UPDATE, data)
            return
        told.screen = sandbox, data
        if told.screen_due is None:
            loop = asyncio.get_running_loop()
            told.screen_due = loop.call_at(told.screen_at + SCREEN_EVERY, self._tell_screen, sandbox.id)

    def desktop(self, sandbox: Sandbox, *, up: bool, reason: str | None = None) -> None:
        """The desktop is there, or no more."""
        if up:
            self._write(sandbox, EventType.DESKTOP_STARTED, {})
        else:
            self._write(sandbox, EventType.DESKTOP_STOPPED, {"reason": reason})

    def forget(self, sandbox_id: str) -> None:
        """The sandbox has ended, and nothing may follow that."""
        told = self._told.pop(sandbox_id, None)
        if told is not None and told.screen_due is not None:
            told.screen_due.cancel()

    async def close(self) -> None:
        """Write what has not been written."""
        for sandbox_id in list(self._told):
            self.forget(sandbox_id)
        await asyncio.gather(*self._writing, return_exceptions=True)

    def _of(self, sandbox_id: str) -> _Told:
        told = self._told.get(sandbox_id)
        if told is None:
            now = asyncio.get_running_loop().time()
            told = self._told[sandbox_id] = _Told(counted_at=now, files_at=now)
        return told

    def _tell_screen(self, sandbox_id: str) -> None:
        told = self._told.get(sandbox_id)
        if told is None or told.screen is None:
            return
        (sandbox, data), told.screen, told.screen_due = told.screen, None, None
        told.screen_at = asyncio.get_running_loop().time()
        self._write(sandbox, EventType.SCREENSHOT_UPDATE, data)

    def _write(self, sandbox: Sandbox, kind: EventType, data: Mapping[str, Any]) -> None:
        if len(self._writing) >= MOST_WAITING:
            return
        task = asyncio.create_task(self._append(sandbox, kind, data))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def _append(self, sandbox: Sandbox, kind: EventType, data: Mapping[str, Any]) -> None:
        try:
            await self._events.append(sandbox_stream(sandbox.id), kind, data, tenant=sandbox.tenant)
        except PaddockError as error:
            log.warning("an event could not be written", sandbox=sandbox.id, type=kind.value, error=error.message)
