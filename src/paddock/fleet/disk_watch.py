"""Measures the disk use of sandboxes and stops writes above their limit.

Reading the host's free space costs one system call, so it is read often. A sandbox is measured only when the host has
lost as much space since its last measurement as the sandbox had left: before that it cannot be above its limit.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import structlog

from paddock.errors import PaddockError
from paddock.fleet.disk_overuse import DiskOveruse
from paddock.fleet.fleet import Fleet
from paddock.model.events import EventType
from paddock.model.sandbox import Sandbox, SandboxState, VolumeUse
from paddock.sandbox.base import Feature

CHECK_AFTER_LOSS = 16 * 2**20
"""Bytes of free space that the host must lose before sandboxes are checked early."""
MEASURE_INTERVAL = 30.0
OVERUSE_INTERVAL = 0.5
"""Seconds between measurements of a sandbox above its limit, which may write again once below it."""
FREEZE_AFTER = 0.25
"""Seconds of measuring after which a suspected sandbox is frozen."""
MAX_STOPS = 3
"""Times a sandbox may keep growing although its writes are refused; then it is ended."""
ALL_ROWS = 1_000_000
NO_LIMIT = 2**62
log = structlog.get_logger()


@dataclass
class _DiskUse:
    """Measurement state of a sandbox, or of a tenant's volumes."""

    measured_at: float = 0.0
    headroom: int = 0
    lost: int = 0
    """Bytes of free space that the host lost since the last measurement."""
    busy: bool = False


class DiskWatch:
    """Decides when to measure and enforces limits. `end` ends a sandbox with a reason and a message."""

    def __init__(self, fleet: Fleet, end: Callable[[Sandbox, str, str], Awaitable[None]]) -> None:
        self._fleet = fleet
        self._end = end
        self._free_bytes = 0
        self._checked_at = 0.0
        self._watched: dict[str, _DiskUse] = {}
        self._overuse = DiskOveruse()

    async def check_disk_use(self) -> None:
        """Start background measurements of sandboxes and volumes that may be above their limits."""
        now = asyncio.get_running_loop().time()
        free = shutil.disk_usage(self._fleet.config.data).free
        self._free_bytes = max(self._free_bytes, free)
        lost = self._free_bytes - free
        patience = OVERUSE_INTERVAL if any(map(self._overuse.is_over, self._watched)) else MEASURE_INTERVAL
        if lost < CHECK_AFTER_LOSS and now - self._checked_at < patience:
            return
        self._free_bytes, self._checked_at = free, now
        running, _ = await self._fleet.sandboxes.list(states=[SandboxState.RUNNING], page_size=ALL_ROWS)
        known = {name for sandbox in running for name in (sandbox.id, volumes_label(sandbox.tenant))}
        self._watched = {name: self._watched.get(name) or _DiskUse() for name in known}
        self._overuse.keep_only(known)
        for watched in self._watched.values():
            watched.lost += lost
        for sandbox in running:
            self._start_measuring(sandbox.id, now, partial(self._check_sandbox, sandbox))
        for tenant in self._fleet.volumes.list_tenants():
            writers = [each for each in running if each.tenant == tenant and _writes_volumes(each)]
            if writers:
                self._start_measuring(volumes_label(tenant), now, partial(self._check_volumes, tenant, writers))

    def _start_measuring(self, name: str, now: float, check: Callable[[bool], Awaitable[int]]) -> None:
        """Measure in the background if it is due. `check` returns the headroom."""
        watched = self._watched[name]
        over = self._overuse.is_over(name)
        suspected = watched.lost >= (CHECK_AFTER_LOSS if over else watched.headroom)
        patience = OVERUSE_INTERVAL if over else MEASURE_INTERVAL
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
        if self._overuse.is_growing(sandbox.id, used, limit):
            await self._stop_writes(
                sandbox, f"this sandbox has used {_describe_use(used, limit)} it may write", used=used, limit=limit
            )
            self._overuse.set_baseline(sandbox.id, await self._fleet.backend.disk_used(sandbox.record))
            if self._overuse.stop_count(sandbox.id) > MAX_STOPS:
                message = "the sandbox kept writing above its disk limit in ways that cannot be refused"
                await self._end(sandbox, "disk_full", message)
        await self._allow_writes(sandbox)
        return limit - used

    async def _check_volumes(self, tenant: str, writers: list[Sandbox], _: bool) -> int:
        limit = self._fleet.config.quotas.for_tenant(tenant).volumes
        if limit is None:
            return NO_LIMIT
        name = volumes_label(tenant)
        used = await asyncio.to_thread(self._fleet.volumes.used_bytes, tenant)
        grows = self._overuse.is_growing(name, used, limit)
        for sandbox in writers:
            if grows:
                reason = f"the volumes of its tenant use {_describe_use(used, limit)} they may"
                await self._stop_writes(sandbox, reason, volumes=used, limit=limit)
            await self._allow_writes(sandbox)
        if grows:
            self._overuse.set_baseline(name, await asyncio.to_thread(self._fleet.volumes.used_bytes, tenant))
        return limit - used

    async def _measure(self, sandbox: Sandbox, suspected: bool) -> int:
        """Return the bytes written. A suspected sandbox is frozen while a long measurement runs."""
        backend = self._fleet.backend
        measuring = asyncio.ensure_future(backend.disk_used(sandbox.record))
        if suspected and Feature.PAUSE in backend.features:
            await asyncio.wait([measuring], timeout=FREEZE_AFTER)
            if not measuring.done():
                async with self._fleet.sandbox_lock(sandbox.id):
                    if (await self._fleet.sandboxes.get(sandbox.id)).state is SandboxState.RUNNING:
                        await backend.pause(sandbox.record)
                        try:
                            await asyncio.wait([measuring])
                        finally:
                            await asyncio.shield(backend.resume(sandbox.record))
        return await measuring

    async def _stop_writes(self, sandbox: Sandbox, reason: str, **figures: int) -> None:
        """End the commands of a sandbox; new ones may delete but not write."""
        notice = f"{reason}; nothing can be written until files are deleted (takes effect after a moment)"
        try:
            await self._fleet.backend.refuse_writes(sandbox.record, notice)
        except OSError as error:
            log.error("cannot refuse writes of sandbox", sandbox=sandbox.id, error=repr(error))
        await self._fleet.publish_event(sandbox, EventType.DISK_FULL, **figures)
        await self._fleet.backend.end_commands(sandbox.record)
        log.warning("sandbox over its disk limit; commands ended", sandbox=sandbox.id, **figures)

    async def _allow_writes(self, sandbox: Sandbox) -> None:
        """Allow writes again below the limit; an earlier server may have refused them."""
        volumes = volumes_label(sandbox.tenant)
        if not self._overuse.is_over(sandbox.id) and not (_writes_volumes(sandbox) and self._overuse.is_over(volumes)):
            await self._fleet.backend.refuse_writes(sandbox.record, None)


def volumes_label(tenant: str) -> str:
    return f"volumes of {tenant}"


def _writes_volumes(sandbox: Sandbox) -> bool:
    return bool(set(sandbox.volumes.values()) - {VolumeUse.READ})


def _describe_use(used: int, limit: int) -> str:
    return f"{used / 2**20:.0f} MiB of the {limit / 2**20:.0f} MiB"
