"""Admission control: checks a create request against settings, quotas and the host's free disk."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from paddock.config.schema import Config
from paddock.config.units import format_size
from paddock.errors import Conflict, HostFull, InvalidInput, QuotaExceeded, Unsupported
from paddock.fleet.fleet_requests import ImageResolver, NetworkPolicyEnforcer, SandboxRequest
from paddock.fleet.kinds import SandboxKinds
from paddock.fleet.pools import PoolManager
from paddock.model.sandbox import Image, Sandbox, SandboxLimits, SandboxState, SnapshotState
from paddock.model.screens import SandboxKind
from paddock.sandbox.base import BackendFeature
from paddock.store.sandbox_store import SandboxStore
from paddock.store.snapshot_store import SnapshotStore

ALIVE_STATES = [state for state in SandboxState if state.alive]


@dataclass(frozen=True)
class ResolvedSandboxSettings:
    """Image, limits, kind, network policy and user of an admitted sandbox."""

    image: Image
    limits: SandboxLimits
    kind: str | None
    network: tuple[str, ...]
    user: Literal["root"] | None


class AdmissionControl:
    """Rejects invalid or excessive requests before anything is created."""

    def __init__(
        self,
        config: Config,
        images: ImageResolver,
        kinds: SandboxKinds,
        sandboxes: SandboxStore,
        snapshots: SnapshotStore,
        pools: PoolManager,
        features: Collection[BackendFeature],
        network: NetworkPolicyEnforcer | None = None,
    ) -> None:
        self._config = config
        self._images = images
        self._kinds = kinds
        self._sandboxes = sandboxes
        self._snapshots = snapshots
        self._pools = pools
        self._features = features
        self._network = network

    async def check_request(self, tenant: str, request: SandboxRequest) -> ResolvedSandboxSettings:
        """Resolve image, limits, kind and network policy of a request; raise if it is invalid or not allowed."""
        if sum(source is not None for source in (request.image, request.snapshot, request.pool)) > 1:
            raise InvalidInput("give only one of image, snapshotId and poolRef")
        kind = None if request.kind is None else self._kinds.get(request.kind)
        name = request.image or (kind.image if kind else self._config.sandboxes.default_image)
        if kind is not None and name == kind.name:  # OpenSandbox's SDK requires an image; the kind's name is accepted.
            name = kind.image
        if request.snapshot is not None:
            kept = await self._snapshots.get(request.snapshot, tenant)
            if kept.state is not SnapshotState.READY:
                raise Conflict(f"snapshot {kept.id} is {kept.state}, not {SnapshotState.READY}")
            name = kept.image
        user = request.user
        if request.credential_vault and BackendFeature.UPLINK not in self._features:
            raise Unsupported("sandboxes of this backend have no credential vault; leave credentialProxy out")
        if request.pool is not None:
            if request.credential_vault:
                raise InvalidInput(
                    "sandboxes of a pool are already running, without a credential vault; leave poolRef or "
                    "credentialProxy out"
                )
            pool = await self._pools.get(tenant, request.pool)
            name = pool.image
            if request.volumes:
                raise InvalidInput("volumes cannot be added: sandboxes of a pool are already running")
            if kind is not None and pool.kind != kind.name:
                raise InvalidInput(f"pool {pool.name} has sandboxes of kind {pool.kind or 'none'}, not {kind.name}")
            if request.user is not None and pool.user != request.user:
                raise InvalidInput(
                    f"pool {pool.name} has sandboxes whose programs run as the image's user, not {request.user}"
                )
            user = pool.user
            kind = kind if pool.kind is None else self._kinds.get(pool.kind)
        elif kind is None:
            kind = self._kinds.kind_of_image(name)
        if user is not None and BackendFeature.ROOT_MODE not in self._features:
            raise Unsupported(f"sandboxes of this backend cannot run programs as {user}; leave user out")
        # The host image may have to be made first, which takes half a second.
        image = await asyncio.to_thread(self._images.resolve, name)
        limits = self.resolve_limits(request.limits, kind)
        network = self.resolve_network(tenant, request.network, kind)
        self.check_disk()
        return ResolvedSandboxSettings(image, limits, kind.name if kind else None, network, user)

    def resolve_network(
        self, tenant: str, requested: tuple[str, ...] | None, kind: SandboxKind | None
    ) -> tuple[str, ...]:
        """Return the policy of a request: its own, else the kind's, else `network.default`.

        Raises `InvalidInput` for a requested policy of which the bounds allow nothing, `Unsupported` if the backend
        has no network. A policy that nobody asked for is kept as it is: it allows what the bounds leave of it.
        """
        if requested is None:
            own = kind.network if kind is not None else None
            return self._config.network.default if own is None else own
        self.check_network(tenant, requested)
        return requested

    def check_network(self, tenant: str, policy: tuple[str, ...]) -> None:
        """Raise if a requested policy allows something, but this server can grant nothing of it."""
        if not policy:
            return
        if BackendFeature.UPLINK not in self._features:
            raise Unsupported("sandboxes of this backend have no network; leave network out or set it to none")
        if self._network is not None:
            self._network.check_policy(str(tenant), policy)

    def check_disk(self) -> None:
        """Raise `HostFull` when the host has too little free disk space for a sandbox or a snapshot."""
        free = shutil.disk_usage(self._config.data).free
        if free < self._config.sandboxes.min_free_disk:
            raise HostFull(f"the host has only {free >> 20} MiB of disk free; sandboxes.min_free_disk requires more")

    def resolve_limits(self, requested: SandboxLimits, kind: SandboxKind | None = None) -> SandboxLimits:
        """Merge requested limits with the kind's defaults. Raises `InvalidInput` above `sandboxes.max_limits`."""
        bounds = self._config.sandboxes.max_limits.model_dump(exclude_none=True)
        limits = self._kinds.default_limits(kind).model_copy(update=requested.model_dump(exclude_none=True))
        for name, bound in bounds.items():
            if getattr(limits, name) > bound:
                limit = format_size(bound) if name in ("memory", "disk") else str(bound).removesuffix(".0")
                params = {"resource": name, "limit": limit}
                raise InvalidInput(f"{name} may be at most {limit} (sandboxes.max_limits.{name})", params=params)
        return limits

    async def check_quota(self, tenant: str, limits: SandboxLimits) -> None:
        """Raise `QuotaExceeded` unless the tenant may have one more sandbox with these limits."""
        quota = self._config.quotas.for_tenant(tenant)
        if quota.memory is None and quota.cpu is None:
            counts = await self._sandboxes.counts(tenant)
            alive = sum(count for (_, state), count in counts.items() if state.alive)
            owned: Sequence[Sandbox] = ()
        else:
            owned, alive = await self._sandboxes.list(tenant, states=ALIVE_STATES, page_size=100_000)
        if quota.sandboxes is not None and alive >= quota.sandboxes:
            raise QuotaExceeded(f"tenant {tenant} has its {quota.sandboxes} sandboxes; delete one first")
        for name in ("memory", "cpu"):
            bound = getattr(quota, name)
            used = sum(getattr(sandbox.limits, name) or 0 for sandbox in owned) + (getattr(limits, name) or 0)
            if bound is not None and used > bound:
                raise QuotaExceeded(f"tenant {tenant} would use {used} of its {bound} {name}")

    def expiry_time(self, timeout: float | Literal["default"] | None, now: datetime) -> datetime | None:
        settings = self._config.sandboxes
        seconds = settings.default_timeout if timeout == "default" else timeout
        if seconds is None:
            return None
        if seconds <= 0 or seconds > settings.max_timeout:
            raise InvalidInput(f"timeout must be more than 0 and at most {settings.max_timeout:.0f} seconds")
        return now + timedelta(seconds=float(seconds))
