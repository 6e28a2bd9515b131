"""Publishes events of screens, tool calls and written files at a bounded rate per sandbox.

Sandboxes may call tools as often as they like, so the events written for each are limited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from paddock.errors import PaddockError
from paddock.events.event_log import EventLog
from paddock.model.events import EventType, sandbox_event_stream
from paddock.model.sandbox import Sandbox

SCREEN_INTERVAL = 1.0
"""Seconds between two screen change events."""
CALLS_PER_SECOND = 10.0
CALL_BURST = 50
"""Calls that are all published before `CALLS_PER_SECOND` applies."""
MAX_PATHS = 50
MAX_PATH_LENGTH = 4096
MAX_PATHS_LENGTH = 8192
"""Characters of all paths in one event."""
MAX_NAME_LENGTH = 128
MAX_PENDING_EVENTS = 1000
"""Unwritten events above which further events are dropped."""
log = structlog.get_logger()


@dataclass
class _SandboxRates:
    """Rate limits and pending events of one sandbox."""

    call_credit: float = CALL_BURST
    files_credit: float = CALL_BURST
    counted_at: float = 0.0
    files_at: float = 0.0
    left_out: int = 0
    screen_at: float = float("-inf")
    screen_due: asyncio.TimerHandle | None = None
    screen: tuple[Sandbox, dict[str, Any]] | None = field(default=None, repr=False)


class ThrottledEvents:
    """Appends events in the background, so that tool calls do not wait for the disk."""

    def __init__(self, events: EventLog) -> None:
        self._events = events
        self._rates: dict[str, _SandboxRates] = {}
        self._writing: set[asyncio.Task[None]] = set()

    def publish_tool_call(self, sandbox: Sandbox, name: str, seconds: float, *, failed: bool) -> None:
        """Publish a tool call. Above the rate limit, calls are counted in `left_out` of the next event."""
        rates = self._rates_of(sandbox.id)
        now = asyncio.get_running_loop().time()
        rates.call_credit = min(CALL_BURST, rates.call_credit + (now - rates.counted_at) * CALLS_PER_SECOND)
        rates.counted_at = now
        if rates.call_credit < 1:
            rates.left_out += 1
            return
        rates.call_credit -= 1
        data: dict[str, Any] = {"name": name[:MAX_NAME_LENGTH], "seconds": round(seconds, 4), "failed": failed}
        if rates.left_out:
            data["left_out"], rates.left_out = rates.left_out, 0
        self._append_in_background(sandbox, EventType.TOOL_CALLED, data)

    def publish_file_changes(self, sandbox: Sandbox, tool: str, paths: Sequence[str]) -> None:
        """Publish the files that a tool has written, up to the rate limit."""
        rates = self._rates_of(sandbox.id)
        now = asyncio.get_running_loop().time()
        rates.files_credit = min(CALL_BURST, rates.files_credit + (now - rates.files_at) * CALLS_PER_SECOND)
        rates.files_at = now
        if paths and rates.files_credit >= 1:
            rates.files_credit -= 1
            shown, left = [], MAX_PATHS_LENGTH
            for path in paths[:MAX_PATHS]:
                shown.append(path[:MAX_PATH_LENGTH])
                left -= len(shown[-1])
                if left <= 0:
                    break
            self._append_in_background(
                sandbox, EventType.FILE_CHANGED, {"tool": tool[:MAX_NAME_LENGTH], "paths": shown}
            )

    def publish_screen_change(
        self,
        sandbox: Sandbox,
        cause: str,
        *,
        etag: str | None = None,
        width: int | None = None,
        height: int | None = None,
    ) -> None:
        """Publish a screen change, at most once a second; the last change is always published."""
        rates = self._rates_of(sandbox.id)
        data = {"etag": etag, "width": width, "height": height, "cause": cause[:MAX_NAME_LENGTH]}
        now = asyncio.get_running_loop().time()
        if rates.screen_due is None and now - rates.screen_at >= SCREEN_INTERVAL:
            rates.screen_at = now
            self._append_in_background(sandbox, EventType.SCREENSHOT_UPDATE, data)
            return
        rates.screen = sandbox, data
        if rates.screen_due is None:
            loop = asyncio.get_running_loop()
            rates.screen_due = loop.call_at(rates.screen_at + SCREEN_INTERVAL, self._publish_pending_screen, sandbox.id)

    def publish_desktop_state(self, sandbox: Sandbox, *, up: bool, reason: str | None = None) -> None:
        """Publish that the desktop has started or stopped."""
        if up:
            self._append_in_background(sandbox, EventType.DESKTOP_STARTED, {})
        else:
            self._append_in_background(sandbox, EventType.DESKTOP_STOPPED, {"reason": reason})

    def forget_sandbox(self, sandbox_id: str) -> None:
        """Drop pending events of a sandbox that has ended: no event may follow its end."""
        rates = self._rates.pop(sandbox_id, None)
        if rates is not None and rates.screen_due is not None:
            rates.screen_due.cancel()

    async def close(self) -> None:
        """Wait for events that are being written."""
        for sandbox_id in list(self._rates):
            self.forget_sandbox(sandbox_id)
        await asyncio.gather(*self._writing, return_exceptions=True)

    def _rates_of(self, sandbox_id: str) -> _SandboxRates:
        rates = self._rates.get(sandbox_id)
        if rates is None:
            now = asyncio.get_running_loop().time()
            rates = self._rates[sandbox_id] = _SandboxRates(counted_at=now, files_at=now)
        return rates

    def _publish_pending_screen(self, sandbox_id: str) -> None:
        rates = self._rates.get(sandbox_id)
        if rates is None or rates.screen is None:
            return
        (sandbox, data), rates.screen, rates.screen_due = rates.screen, None, None
        rates.screen_at = asyncio.get_running_loop().time()
        self._append_in_background(sandbox, EventType.SCREENSHOT_UPDATE, data)

    def _append_in_background(self, sandbox: Sandbox, kind: EventType, data: Mapping[str, Any]) -> None:
        if len(self._writing) >= MAX_PENDING_EVENTS:
            return
        task = asyncio.create_task(self._append(sandbox, kind, data))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def _append(self, sandbox: Sandbox, kind: EventType, data: Mapping[str, Any]) -> None:
        try:
            await self._events.append(sandbox_event_stream(sandbox.id), kind, data, tenant=sandbox.tenant)
        except PaddockError as error:
            log.warning("cannot write event", sandbox=sandbox.id, type=kind.value, error=error.message)
