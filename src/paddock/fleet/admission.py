"""Whether a sandbox may be made: by its request, its tenant's quota and the state of the host."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from paddock.config.schema import Config
from paddock.errors import Conflict, HostFull, InvalidInput, QuotaExceeded, Unsupported
from paddock.fleet.kinds import Kinds
from paddock.fleet.pools import Pools
from paddock.fleet.requests import CreateSandbox, ImageSource
from paddock.model.sandbox import Image, Limits, Sandbox, SandboxState, SnapshotState
from paddock.model.screens import Kind
from paddock.store.sandboxes import SandboxStore
from paddock.store.snapshots import SnapshotStore

ALIVE = [state for state in SandboxState if state.alive]


@dataclass(frozen=True)
class Admitted:
    """What a sandbox that may be made is made of."""

    image: Image
    limits: Limits
    kind: str | None


class Admission:
    """Says no, with a reason, before anything is made."""

    def __init__(
        self,
        config: Config,
        images: ImageSource,
        kinds: Kinds,
        sandboxes: SandboxStore,
        snapshots: SnapshotStore,
        pools: Pools,
    ) -> None:
        self._config = config
        self._images = images
        self._kinds = kinds
        self._sandboxes = sandboxes
        self._snapshots = snapshots
        self._pools = pools

    async def check(self, tenant: str, request: CreateSandbox) -> Admitted:
        """Refuse what cannot or may not be, before anything is made."""
        if sum(source is not None for source in (request.image, request.snapshot, request.pool)) > 1:
            raise InvalidInput("give one of image, snapshotId and poolRef, not several")
        if request.network_default not in (None, "deny"):
            raise Unsupported("local sandboxes have no network: networkPolicy.defaultAction must be 'deny'")
        kind = None if request.kind is None else self._kinds.get(request.kind)
        name = request.image or (kind.image if kind else self._config.sandboxes.default_image)
        if kind is not None and name == kind.name:  # OpenSandbox's SDK must name an image, and the kind will do.
            name = kind.image
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
            if kind is not None and pool.kind != kind.name:
                raise InvalidInput(f"pool {pool.name} has boxes of kind {pool.kind or 'none'}, not {kind.name}")
            kind = kind if pool.kind is None else self._kinds.get(pool.kind)
        elif kind is None:
            kind = self._kinds.of_image(name)
        image = self._images.resolve(name)
        limits = self.limits(request.limits, kind)
        self.check_disk()
        return Admitted(image, limits, kind.name if kind else None)

    def check_disk(self) -> None:
        """Raise `HostFull` when the host has no room for what a box writes, or for a copy of it."""
        free = shutil.disk_usage(self._config.data).free
        if free < self._config.sandboxes.min_free_disk:
            raise HostFull(f"the host has only {free >> 20} MiB of disk free; sandboxes.min_free_disk wants more")

    def limits(self, asked: Limits, kind: Kind | None = None) -> Limits:
        """What a box gets that is asked for with these. Raises `InvalidInput` for more than may be."""
        bounds = self._config.sandboxes.max_limits.model_dump(exclude_none=True)
        limits = self._kinds.limits(kind).model_copy(update=asked.model_dump(exclude_none=True))
        for name, bound in bounds.items():
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
