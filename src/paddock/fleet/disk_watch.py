"""Watches what sandboxes write, and stops those that are over their disk limit.

Looking at the host's free space costs one system call, so that is done often. A sandbox is measured only when the
host has lost as much space since its last measurement as the sandbox had left: before that it cannot be over.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import structlog

from paddock.errors import PaddockError
from paddock.fleet.excess import Excess
from paddock.fleet.fleet import Fleet
from paddock.model.events import EventType
from paddock.model.sandbox import Sandbox, SandboxState, VolumeUse
from paddock.sandbox.base import Feature

LOOK_AFTER = 16 * 2**20
"""Sandboxes are looked at when the host has lost this much free space, and from time to time anyway."""
MEASURE_ANYWAY = 30.0
FULL_EVERY = 0.5
"""Seconds between measurements of what is over its limit, which may go on as soon as it has room."""
QUICK = 0.25
"""Seconds for which a sandbox that may be over its limit runs on while it is measured."""
MOST_STOPS = 3
"""Times a sandbox may write on although it is over its limit and cannot by ordinary means. Then it is ended."""
EVERYTHING = 1_000_000
NO_LIMIT = 2**62
log = structlog.get_logger()


@dataclass
class _Watched:
    """A sandbox, or the volumes of a tenant."""

    measured_at: float = 0.0
    headroom: int = 0
    lost: int = 0
    """Bytes of free space the host has lost since the last measurement."""
    busy: bool = False


class DiskWatch:
    """Measures when there is reason to. `end` ends a sandbox for good, with a reason and a message."""

    def __init__(self, fleet: Fleet, end: Callable[[Sandbox, str, str], Awaitable[None]]) -> None:
        self._fleet = fleet
        self._end = end
        self._free = 0
        self._looked_at = 0.0
        self._watched: dict[str, _Watched] = {}
        self._excess = Excess()

    async def look(self) -> None:
        """Start measuring what may be over its limit. Measuring itself goes on in the background."""
        now = asyncio.get_running_loop().time()
        free = shutil.disk_usage(self._fleet.config.data).free
        self._free = max(self._free, free)
        lost = self._free - free
        patience = FULL_EVERY if any(map(self._excess.over, self._watched)) else MEASURE_ANYWAY
        if lost < LOOK_AFTER and now - self._looked_at < patience:
            return
        self._free, self._looked_at = free, now
        running, _ = await self._fleet.sandboxes.list(states=[SandboxState.RUNNING], page_size=EVERYTHING)
        known = {name for sandbox in running for name in (sandbox.id, volumes_of(sandbox.tenant))}
        self._watched = {name: self._watched.get(name) or _Watched() for name in known}
        self._excess.keep(known)
        for watched in self._watched.values():
            watched.lost += lost
        for sandbox in running:
            self._start(sandbox.id, now, partial(self._check_sandbox, sandbox))
        for tenant in self._fleet.volumes.tenants():
            writers = [each for each in running if each.tenant == tenant and _writes_volumes(each)]
            if writers:
                self._start(volumes_of(tenant), now, partial(self._check_volumes, tenant, writers))

    def _start(self, name: str, now: float, check: Callable[[bool], Awaitable[int]]) -> None:
        """Measure in the background if it is time to. `check` returns the headroom."""
        watched = self._watched[name]
        over = self._excess.over(name)
        suspected = watched.lost >= (LOOK_AFTER if over else watched.headroom)
        patience = FULL_EVERY if over else MEASURE_ANYWAY
        if watched.busy or not (suspected or now - watched.measured_at >= patience):
            return
        watched.busy, watched.lost = True, 0

        async def measure() -> None:
            try:
                watched.headroom = await check(suspected and not over)
            except (PaddockError, OSError, TimeoutError) as error:
                log.error("cannot check disk use", of=name, error=repr(error))
            finally:
                watched.busy, watched.measured_at = False, asyncio.get_running_loop().time()

        self._fleet.spawn(measure(), name=f"measure {name}")

    async def _check_sandbox(self, sandbox: Sandbox, suspected: bool) -> int:
        limit = sandbox.limits.disk
        if limit is None:
            return NO_LIMIT
        used = await self._measure(sandbox, suspected)
        if self._excess.grows(sandbox.id, used, limit):
            await self._stop(sandbox, f"this sandbox has written {_shown(used, limit)} it may", used=used, limit=limit)
            self._excess.settle(sandbox.id, await self._fleet.backend.disk_used(sandbox.record))
            if self._excess.stops(sandbox.id) > MOST_STOPS:
                message = "it had written more than its disk limit, and went on in ways that cannot be refused"
                await self._end(sandbox, "disk_full", message)
        await self._allow(sandbox)
        return limit - used

    async def _check_volumes(self, tenant: str, writers: list[Sandbox], _: bool) -> int:
        limit = self._fleet.config.quotas.of(tenant).volumes
        if limit is None:
            return NO_LIMIT
        name = volumes_of(tenant)
        used = await asyncio.to_thread(self._fleet.volumes.used, tenant)
        grows = self._excess.grows(name, used, limit)
        for sandbox in writers:
            if grows:
                reason = f"the volumes of its tenant have {_shown(used, limit)} they may"
                await self._stop(sandbox, reason, volumes=used, limit=limit)
            await self._allow(sandbox)
        if grows:
            self._excess.settle(name, await asyncio.to_thread(self._fleet.volumes.used, tenant))
        return limit - used

    async def _measure(self, sandbox: Sandbox, suspected: bool) -> int:
        """Return the bytes written. A suspect that takes long to measure is frozen meanwhile."""
        backend = self._fleet.backend
        measuring = asyncio.ensure_future(backend.disk_used(sandbox.record))
        if suspected and Feature.PAUSE in backend.features:
            await asyncio.wait([measuring], timeout=QUICK)
            if not measuring.done():
                async with self._fleet.lock(sandbox.id):
                    if (await self._fleet.sandboxes.get(sandbox.id)).state is SandboxState.RUNNING:
                        await backend.pause(sandbox.record)
                        try:
                            await asyncio.wait([measuring])
                        finally:
                            await asyncio.shield(backend.resume(sandbox.record))
        return await measuring

    async def _stop(self, sandbox: Sandbox, reason: str, **figures: int) -> None:
        """End the commands of a sandbox, and let new ones delete but not write."""
        notice = f"{reason}; nothing can be written until files are deleted, and a moment longer"
        try:
            await self._fleet.backend.refuse_writes(sandbox.record, notice)
        except OSError as error:
            log.error("cannot refuse writes of sandbox", sandbox=sandbox.id, error=repr(error))
        await self._fleet.tell(sandbox, EventType.DISK_FULL, **figures)
        await self._fleet.backend.end_commands(sandbox.record)
        log.warning("sandbox over its disk limit; commands ended", sandbox=sandbox.id, **figures)

    async def _allow(self, sandbox: Sandbox) -> None:
        """Let a sandbox write again that has room, as it may since an earlier server refused it."""
        volumes = volumes_of(sandbox.tenant)
        if not self._excess.over(sandbox.id) and not (_writes_volumes(sandbox) and self._excess.over(volumes)):
            await self._fleet.backend.refuse_writes(sandbox.record, None)


def volumes_of(tenant: str) -> str:
    return f"volumes of {tenant}"


def _writes_volumes(sandbox: Sandbox) -> bool:
    return bool(set(sandbox.volumes.values()) - {VolumeUse.READ})


def _shown(used: int, limit: int) -> str:
    return f"{used / 2**20:.0f} MiB of the {limit / 2**20:.0f} MiB"
