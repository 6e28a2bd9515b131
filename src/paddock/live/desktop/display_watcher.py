"""Watches the displays of sandboxes and publishes when they start and stop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

import structlog

from paddock.errors import NotFound, PaddockError, SandboxGone
from paddock.fleet.display_ready import DISPLAY_SERVICE
from paddock.fleet.fleet import Fleet
from paddock.live.throttled_events import ThrottledEvents
from paddock.model.sandbox import Sandbox, SandboxState

RETRY_DELAYS = (0.2, 1.0, 5.0, 15.0)
"""Seconds before each reconnect to a sandbox; the last applies to all further attempts."""
START_GRACE = 0.2
"""Seconds before a new sandbox is queried: starting the display and serving viewers come first."""
CHANGE_INTERVAL = 1.0
"""Minimum seconds between two published changes of one sandbox."""
log = structlog.get_logger()


class DisplayWatcher:
    """Runs one watch task per sandbox with a screen; publishes `desktop.started` and `desktop.stopped`."""

    def __init__(self, fleet: Fleet, events: ThrottledEvents) -> None:
        self._fleet = fleet
        self._events = events
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._is_up: dict[str, bool] = {}

    def watch(self, sandbox: Sandbox) -> None:
        """Start watching a sandbox's screen, if it has one. Idempotent."""
        if sandbox.id not in self._tasks and self._has_screen(sandbox):
            if sandbox.state is not SandboxState.PENDING:
                self._is_up[sandbox.id] = True  # An earlier server has published it.
            task = asyncio.create_task(self._watch(sandbox), name=f"display of {sandbox.id}")
            self._tasks[sandbox.id] = task

    async def unwatch(self, sandbox_id: str) -> None:
        """Stop watching a sandbox."""
        task = self._tasks.pop(sandbox_id, None)
        self._is_up.pop(sandbox_id, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        for sandbox_id in list(self._tasks):
            await self.unwatch(sandbox_id)

    def _has_screen(self, sandbox: Sandbox) -> bool:
        try:
            image = self._fleet.images.resolve(sandbox.image)
        except PaddockError:  # The image was removed; the sandbox still runs.
            return sandbox.kind not in (None, "code")
        return any(service.name == DISPLAY_SERVICE for service in image.services)

    async def _watch(self, sandbox: Sandbox) -> None:
        retries = 0
        while True:
            try:
                running = await self._wait_until_running(sandbox)
                if running is None:
                    return
                async with aclosing(self._fleet.client(running).watch_services()) as changes:
                    async for service in changes:
                        retries = 0
                        if service.get("name") == DISPLAY_SERVICE:
                            await self._publish_change(running, service)
            except SandboxGone:
                pass
            except NotFound:
                return
            except PaddockError as error:
                log.info("cannot watch display; will retry", sandbox=sandbox.id, error=error.message)
            await asyncio.sleep(RETRY_DELAYS[min(retries, len(RETRY_DELAYS) - 1)])
            retries += 1

    async def _wait_until_running(self, sandbox: Sandbox) -> Sandbox | None:
        """Wait until the sandbox runs; return None when it has ended."""
        while True:
            starting = self._fleet.starting.get(sandbox.id)
            if starting is not None:
                await asyncio.wait([starting])
                if sandbox.pool is None:  # A pooled sandbox has its display already.
                    await asyncio.sleep(START_GRACE)
            found = await self._fleet.get(sandbox.tenant, sandbox.id)
            if found.state is SandboxState.RUNNING:
                return found
            if not found.state.alive or found.state is SandboxState.STOPPING:
                return None
            await asyncio.sleep(RETRY_DELAYS[1])

    async def _publish_change(self, sandbox: Sandbox, service: Mapping[str, Any]) -> None:
        up = service.get("ready") is True
        before = self._is_up.get(sandbox.id)
        if up == before or (not up and before is None):
            return
        self._is_up[sandbox.id] = up
        code = service.get("exit_code")
        stopped = service.get("state") in ("stopping", "stopped")
        reason = "stopped" if stopped else f"exit code {code}"[:40] if isinstance(code, int) else "died"
        self._events.publish_desktop_state(sandbox, up=up, reason=None if up else reason)
        # Meanwhile the sandbox blocks or coalesces changes, so that a hostile one cannot fill the disk.
        await asyncio.sleep(CHANGE_INTERVAL)
