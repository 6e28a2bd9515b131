"""Measures the disk use of sandboxes and stops writes above their limit.

Reading the host's free space costs one system call, so it is read often. A sandbox is measured only when the host has
lost as much space since its last measurement as the sandbox had left: before that it cannot be above its limit.

Files without a name are found through the processes that have them open. A sandbox that may hold others, such as in
messages between its processes, is charged for losses of the host that nothing else explains.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self

import structlog

from paddock.errors import PaddockError
from paddock.fleet.disk_overuse import DiskOveruseTracker
from paddock.fleet.fleet import Fleet
from paddock.model.events import EventType
from paddock.model.sandbox import Sandbox, SandboxState, VolumeAccess
from paddock.sandbox.base import BackendFeature

CHECK_AFTER_LOSS = 16 * 2**20
"""Bytes of free space that the host must lose before sandboxes are checked early."""
MEASURE_INTERVAL = 30.0
OVERUSE_INTERVAL = 0.5
"""Seconds between measurements of a sandbox above its limit, which may write again once below it."""
FREEZE_AFTER = 0.25
"""Seconds of measuring after which a suspected sandbox is frozen."""
MESSAGE_SECONDS = 0.1
"""Seconds that descriptors may be on their way between processes without being noticed."""
UNEXPLAINED_SLACK = 256 * 2**20
"""Bytes beyond a sandbox's limit that the host may lose to something else before the sandbox is charged for them."""
MAX_STOPS = 3
"""Times a sandbox may keep growing although its writes are refused; then it is ended."""
ALL_ROWS = 1_000_000
NO_LIMIT = 2**62
log = structlog.get_logger()


@dataclass
class _DiskUse:
    """Measurement state of a sandbox, or of a tenant's volumes."""

    measured_at: float = 0.0
    used: int | None = None
    """Bytes at the last measurement."""
    headroom: int = 0
    lost: int = 0
    """Bytes of free space that the host lost since the last measurement."""
    unexplained: int = 0
    """Bytes that the host lost while the sandbox may have held files that cannot be found."""
    busy: bool = False


class _FreeSpace(NamedTuple):
    """Free space of a file system."""

    data: int
    inodes: int
    """Free inodes, in the bytes that an inode is charged for."""

    @classmethod
    def read(cls, path: Path) -> Self:
        file_system = os.statvfs(path)
        per_inode = file_system.f_blocks * file_system.f_frsize // file_system.f_files if file_system.f_files else 0
        return cls(file_system.f_bavail * file_system.f_frsize, file_system.f_favail * per_inode)

    def maximum(self, other: Self) -> Self:
        return type(self)(max(self.data, other.data), max(self.inodes, other.inodes))

    def loss_until(self, later: Self) -> int:
        return max(self.data - later.data, self.inodes - later.inodes)


class DiskWatch:
    """Decides when to measure and enforces limits. `end` ends a sandbox with a reason and a message."""

    def __init__(self, fleet: Fleet, end: Callable[[Sandbox, str, str], Awaitable[None]]) -> None:
        self._fleet = fleet
        self._end = end
        self._free = _FreeSpace(0, 0)
        self._checked_at = 0.0
        self._watched: dict[str, _DiskUse] = {}
        self._overuse = DiskOveruseTracker()

    async def check_disk_use(self) -> None:
        """Start background measurements of sandboxes and volumes that may be above their limits."""
        now = asyncio.get_running_loop().time()
        free = _FreeSpace.read(self._fleet.config.data)
        self._free = self._free.maximum(free)
        lost = self._free.loss_until(free)
        patience = OVERUSE_INTERVAL if any(map(self._overuse.is_over, self._watched)) else MEASURE_INTERVAL
        if lost < CHECK_AFTER_LOSS and now - self._checked_at < patience:
            return
        self._free, self._checked_at = free, now
        running, _ = await self._fleet.sandboxes.list(states=[SandboxState.RUNNING], page_size=ALL_ROWS)
        known = {name for sandbox in running for name in (sandbox.id, tenant_volumes_label(sandbox.tenant))}
        self._watched = {name: self._watched.get(name) or _DiskUse() for name in known}
        self._overuse.keep_only(known)
        for watched in self._watched.values():
            watched.lost += lost
        for sandbox in running:
            self._start_measuring(sandbox.id, now, partial(self._check_sandbox, sandbox))
        for tenant in self._fleet.volumes.list_tenants():
            writers = [each for each in running if each.tenant == tenant and _writes_volumes(each)]
            if writers:
                self._start_measuring(tenant_volumes_label(tenant), now, partial(self._check_volumes, tenant, writers))

    def _start_measuring(self, name: str, now: float, check: Callable[[bool, int], Awaitable[int]]) -> None:
        """Measure in the background if it is due.

        `check` gets whether the limit may be exceeded and how much the host has lost, and returns the headroom.
        """
        watched = self._watched[name]
        over = self._overuse.is_over(name)
        suspected = watched.lost >= (CHECK_AFTER_LOSS if over else watched.headroom)
        patience = OVERUSE_INTERVAL if over else MEASURE_INTERVAL
        if watched.busy or not (suspected or now - watched.measured_at >= patience):
            return
        watched.busy, lost, watched.lost = True, watched.lost, 0

        async def measure() -> None:
            try:
                watched.headroom = await check(suspected and not over, lost)
            except (PaddockError, OSError, TimeoutError) as error:
                log.error("cannot check disk use", of=name, error=repr(error))
            finally:
                watched.busy, watched.measured_at = False, asyncio.get_running_loop().time()

        self._fleet.spawn(measure(), name=f"measure {name}")

    async def _check_sandbox(self, sandbox: Sandbox, suspected: bool, lost: int) -> int:
        limit = sandbox.limits.disk
        if limit is None:
            return NO_LIMIT
        watched = self._watched[sandbox.id]
        used = await self._measure(sandbox, suspected)
        if watched.used is not None:
            watched.unexplained += max(0, lost - max(0, used - watched.used))
        watched.used = used
        if used <= limit and watched.unexplained >= max(CHECK_AFTER_LOSS, limit - used):
            used += await self._find_hidden_use(sandbox, watched, limit)
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

    async def _check_volumes(self, tenant: str, writers: list[Sandbox], suspected: bool, lost: int) -> int:
        limit = self._fleet.config.quotas.for_tenant(tenant).volumes
        if limit is None:
            return NO_LIMIT
        name = tenant_volumes_label(tenant)
        used = self._watched[name].used = await asyncio.to_thread(self._fleet.volumes.used_bytes, tenant)
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
        if suspected and BackendFeature.PAUSE in backend.features:
            await asyncio.wait([measuring], timeout=FREEZE_AFTER)
            if not measuring.done():
                async with self._frozen(sandbox):
                    await asyncio.wait([measuring])
        return await measuring

    @asynccontextmanager
    async def _frozen(self, sandbox: Sandbox) -> AsyncIterator[None]:
        """Freeze a sandbox, if it is running and the backend can."""
        backend = self._fleet.backend
        async with self._fleet.sandbox_lock(sandbox.id):
            if (
                BackendFeature.PAUSE not in backend.features
                or (await self._fleet.sandboxes.get(sandbox.id)).state is not SandboxState.RUNNING
            ):
                yield
                return
            await backend.pause(sandbox.record)
            try:
                yield
            finally:
                await asyncio.shield(backend.resume(sandbox.record))

    async def _find_hidden_use(self, sandbox: Sandbox, watched: _DiskUse, limit: int) -> int:
        """Return further bytes that a sandbox uses, after the host lost more than its use has grown.

        The sandbox is frozen while its open files are listed: a running one can pass them from process to process.
        """
        backend, used = self._fleet.backend, watched.used or 0
        for pause in (MESSAGE_SECONDS, 0):
            async with self._frozen(sandbox):
                found = await backend.open_deleted_files(sandbox.record)
                exact = await backend.disk_used(sandbox.record) if found.size >= CHECK_AFTER_LOSS else used
            if exact > limit or not found.may_hide_more:
                watched.unexplained = 0
                return exact - used
            await asyncio.sleep(pause)
        if watched.unexplained > limit - used + UNEXPLAINED_SLACK:
            watched.unexplained -= await self._measure_growth_of_others(sandbox)
        if watched.unexplained <= limit - used + UNEXPLAINED_SLACK:
            return 0
        hidden, watched.unexplained = watched.unexplained, 0
        log.warning("sandbox charged for unexplained disk use", sandbox=sandbox.id, bytes=hidden)
        return hidden

    async def _measure_growth_of_others(self, sandbox: Sandbox) -> int:
        """Return how much the other sandboxes and all volumes have grown since they were last measured."""
        running, _ = await self._fleet.sandboxes.list(states=[SandboxState.RUNNING], page_size=ALL_ROWS)
        grown = 0
        for other in running:
            if other.id != sandbox.id:
                grown += self._growth(other.id, await self._fleet.backend.disk_used(other.record))
        for tenant in self._fleet.volumes.list_tenants():
            used = await asyncio.to_thread(self._fleet.volumes.used_bytes, tenant)
            grown += self._growth(tenant_volumes_label(tenant), used)
        return grown

    def _growth(self, name: str, used: int) -> int:
        watched = self._watched.get(name)
        return max(0, used - (watched.used or 0 if watched else 0))

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
        volumes = tenant_volumes_label(sandbox.tenant)
        if not self._overuse.is_over(sandbox.id) and not (_writes_volumes(sandbox) and self._overuse.is_over(volumes)):
            await self._fleet.backend.refuse_writes(sandbox.record, None)


def tenant_volumes_label(tenant: str) -> str:
    return f"volumes of {tenant}"


def _writes_volumes(sandbox: Sandbox) -> bool:
    return bool(set(sandbox.volumes.values()) - {VolumeAccess.READ})


def _describe_use(used: int, limit: int) -> str:
    return f"{used / 2**20:.0f} MiB of the {limit / 2**20:.0f} MiB"
