"""Whether a sandbox may be made: by its request, its tenant's quota and the state of the host."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal

from paddock.config.schema import Config
from paddock.errors import Conflict, HostFull, InvalidInput, QuotaExceeded, Unsupported
from paddock.fleet.pools import Pools
from paddock.fleet.requests import CreateSandbox, ImageSource
from paddock.model.sandbox import Image, Limits, Sandbox, SandboxState, SnapshotState
from paddock.store.sandboxes import SandboxStore
from paddock.store.snapshots import SnapshotStore

ALIVE = [state for state in SandboxState if state.alive]


class Admission:
    """Says no, with a reason, before anything is made."""

    def __init__(
        self, config: Config, images: ImageSource, sandboxes: SandboxStore, snapshots: SnapshotStore, pools: Pools
    ) -> None:
        self._config = config
        self._images = images
        self._sandboxes = sandboxes
        self._snapshots = snapshots
        self._pools = pools

    async def check(self, tenant: str, request: CreateSandbox) -> tuple[Image, Limits]:
        """Refuse what cannot or may not be, before anything is made."""
        if sum(source is not None for source in (request.image, request.snapshot, request.pool)) > 1:
            raise InvalidInput("give one of image, snapshotId and poolRef, not several")
        if request.network_default not in (None, "deny"):
            raise Unsupported("local sandboxes have no network: networkPolicy.defaultAction must be 'deny'")
        name = self._config.sandboxes.default_image if request.image is None else request.image
        if request.snapshot is not None:
            kept = await self._snapshots.get(request.snapshot, tenant)
            if kept.state is not SnapshotState.READY:
                raise Conflict(f"snapshot {kept.id} is {kept.state}, not {SnapshotState.READY}")
            name = kept.image
        if request.pool is not None:
            pool = await self._pools.get(tenant, request.pool)
            name = pool.image
            if request.volumes:
                raise InvalidInput("boxes of a pool are started already; volumes cannot be added")
        image = self._images.resolve(name)
        limits = self.limits(request.limits)
        self.check_disk()
        return image, limits

    def check_disk(self) -> None:
        """Raise `HostFull` when the host has no room for what a box writes, or for a copy of it."""
        free = shutil.disk_usage(self._config.data).free
        if free < self._config.sandboxes.min_free_disk:
            raise HostFull(f"the host has only {free >> 20} MiB of disk free; sandboxes.min_free_disk wants more")

    def limits(self, asked: Limits) -> Limits:
        """What a box gets that is asked for with these. Raises `InvalidInput` for more than may be."""
        defaults = Limits(**self._config.sandboxes.limits.model_dump())
        limits = defaults.model_copy(update=asked.model_dump(exclude_none=True))
        for name, bound in self._config.sandboxes.max_limits.model_dump(exclude_none=True).items():
            if getattr(limits, name) > bound:
                raise InvalidInput(f"{name} may be at most {bound} (sandboxes.max_limits.{name})")
        return limits

    async def check_quota(self, tenant: str, limits: Limits) -> None:
        """Raise `QuotaExceeded` unless the tenant may have one more."""
        quota = self._config.quotas.of(tenant)
        if quota.memory is None and quota.cpu is None:
            counts = await self._sandboxes.counts(tenant)
            alive = sum(count for (_, state), count in counts.items() if state.alive)
            owned: Sequence[Sandbox] = ()
        else:
            owned, alive = await self._sandboxes.list(tenant, states=ALIVE, page_size=100_000)
        if quota.sandboxes is not None and alive >= quota.sandboxes:
            raise QuotaExceeded(f"tenant {tenant} has its {quota.sandboxes} sandboxes; delete one first")
        for name in ("memory", "cpu"):
            bound = getattr(quota, name)
            used = sum(getattr(sandbox.limits, name) or 0 for sandbox in owned) + (getattr(limits, name) or 0)
            if bound is not None and used > bound:
                raise QuotaExceeded(f"tenant {tenant} would use {used} of its {bound} {name}")

    def expiry(self, timeout: float | Literal["default"] | None, now: datetime) -> datetime | None:
        settings = self._config.sandboxes
        seconds = settings.default_timeout if timeout == "default" else timeout
        if seconds is None:
            return None
        if seconds <= 0 or seconds > settings.max_timeout:
            raise InvalidInput(f"timeout must be more than 0 and at most {settings.max_timeout:.0f} seconds")
        return now + timedelta(seconds=float(seconds))
