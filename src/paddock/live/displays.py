"""Notices when the screens of boxes come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

import structlog

from paddock.errors import BoxGone, NotFound, PaddockError
from paddock.fleet.displays import DISPLAY
from paddock.fleet.fleet import Fleet
from paddock.live.updates import Updates
from paddock.model.sandbox import Sandbox, SandboxState

RETRY_AFTER = (0.2, 1.0, 5.0, 15.0)
"""Seconds until a box that broke off is asked again; the last counts for all that follow."""
OPENING = 0.2
"""Seconds in which a new box is left alone: it has its display to start, and those who want to see it come first."""
CHANGE_PAUSE = 1.0
"""Seconds between two changes that are told: what a box says of its display comes no faster."""
log = structlog.get_logger()


class Displays:
    """One watcher for each box that has a screen. It tells `desktop.started` and `desktop.stopped`."""

    def __init__(self, fleet: Fleet, updates: Updates) -> None:
        self._fleet = fleet
        self._updates = updates
        self._watching: dict[str, asyncio.Task[None]] = {}
        self._up: dict[str, bool] = {}

    def watch(self, sandbox: Sandbox) -> None:
        """Watch a sandbox's screen from now on, if it has one. Watching it twice changes nothing."""
        if sandbox.id not in self._watching and self._has_screen(sandbox):
            if sandbox.state is not SandboxState.PENDING:
                self._up[sandbox.id] = True  # An earlier server has told of it.
            task = asyncio.create_task(self._watch(sandbox), name=f"display of {sandbox.id}")
            self._watching[sandbox.id] = task

    async def leave(self, sandbox_id: str) -> None:
        """Watch a sandbox no longer."""
        task = self._watching.pop(sandbox_id, None)
        self._up.pop(sandbox_id, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        for sandbox_id in list(self._watching):
            await self.leave(sandbox_id)

    def _has_screen(self, sandbox: Sandbox) -> bool:
        try:
            image = self._fleet.images.resolve(sandbox.image)
        except PaddockError:  # It is gone since; the box goes on.
            return sandbox.kind not in (None, "code")
        return any(service.name == DISPLAY for service in image.services)

    async def _watch(self, sandbox: Sandbox) -> None:
        tries = 0
        while True:
            try:
                running = await self._running(sandbox)
                if running is None:
                    return
                async with aclosing(self._fleet.client(running).watch_services()) as changes:
                    async for service in changes:
                        tries = 0
                        if service.get("name") == DISPLAY:
                            await self._tell(running, service)
            except BoxGone:
                pass
            except NotFound:
                return
            except PaddockError as error:
                log.info("a display cannot be watched now", sandbox=sandbox.id, error=error.message)
            await asyncio.sleep(RETRY_AFTER[min(tries, len(RETRY_AFTER) - 1)])
            tries += 1

    async def _running(self, sandbox: Sandbox) -> Sandbox | None:
        """The sandbox once it runs, None when it has ended."""
        while True:
            starting = self._fleet.starting.get(sandbox.id)
            if starting is not None:
                await asyncio.wait([starting])
                if sandbox.pool is None:  # In one of a pool it has long been up.
                    await asyncio.sleep(OPENING)
            found = await self._fleet.get(sandbox.tenant, sandbox.id)
            if found.state is SandboxState.RUNNING:
                return found
            if not found.state.alive or found.state is SandboxState.STOPPING:
                return None
            await asyncio.sleep(RETRY_AFTER[1])

    async def _tell(self, sandbox: Sandbox, service: Mapping[str, Any]) -> None:
        up = service.get("ready") is True
        before = self._up.get(sandbox.id)
        if up == before or (not up and before is None):
            return
        self._up[sandbox.id] = up
        code = service.get("exit_code")
        stopped = service.get("state") in ("stopping", "stopped")
        reason = "stopped" if stopped else f"exit code {code}"[:40] if isinstance(code, int) else "died"
        self._updates.desktop(sandbox, up=up, reason=None if up else reason)
        # While nobody reads, the box waits or joins what it has to say; a lying one fills no disk.
        await asyncio.sleep(CHANGE_PAUSE)
