"""Pools of sandboxes that are started ahead of need.

A pooled sandbox is claimed once and never reused. Pools of the configuration serve every tenant; other pools serve the
tenant that created them.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal
from weakref import WeakValueDictionary

import structlog

from paddock.config.schema import Config
from paddock.errors import Conflict, Forbidden, InvalidInput, PaddockError, PoolNotFound
from paddock.fleet.display_ready import DISPLAY_SERVICE, wait_for_display
from paddock.fleet.fleet_requests import ImageResolver, SandboxRequest, new_id
from paddock.fleet.kinds import SandboxKinds
from paddock.model.sandbox import KIND_VARIABLE, Image, SandboxLimits, SandboxPool, SandboxSpec, UplinkService
from paddock.model.screens import SandboxKind
from paddock.sandbox.base import SandboxBackend
from paddock.store.pool_store import PoolStore

SHARED_TENANT = ""
RETRY_DELAY = 5.0
MAX_CONCURRENT_STARTS = 2
"""Sandboxes started ahead of need at the same time."""
log = structlog.get_logger()


@dataclass(frozen=True)
class ReadyPoolSandbox:
    """A started sandbox that can be claimed."""

    id: str
    token: str
    pool: str
    digest: str
    limits: SandboxLimits
    record: Mapping[str, Any]


@dataclass
class _PoolState:
    pool: SandboxPool
    sandboxes: deque[ReadyPoolSandbox] = field(default_factory=deque)
    claims: set[str] = field(default_factory=set)
    """Ids of claimed sandboxes whose records are not stored yet."""
    starting: int = 0
    retry_at: float = 0.0


class PoolManager:
    """Refills every pool in the background and hands out ready sandboxes."""

    def __init__(
        self,
        backend: SandboxBackend,
        images: ImageResolver,
        kinds: SandboxKinds,
        store: PoolStore,
        config: Config,
        uplink_services: tuple[UplinkService, ...] = (),
    ) -> None:
        self._backend = backend
        self._images = images
        self._kinds = kinds
        self._store = store
        self._config = config
        self._uplink_services = uplink_services
        """Uplink services that every pooled sandbox is started with."""
        self._states: dict[tuple[str, str], _PoolState] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        slots = max(4, 2 * (os.cpu_count() or 1))
        self._slots = asyncio.Semaphore(slots)
        self._slots_per_tenant = slots // 2
        self._tenant_slots: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        """Start slots per tenant: a hostile sandbox can be slow to start on purpose."""
        self._waiting_requests = 0
        """Requests waiting for a start; refilling pauses meanwhile."""
        self._changed = asyncio.Event()
        self.starting_ids: set[str] = set()

    async def open(self) -> None:
        await self.load_pools()
        self.spawn(self._refill())

    async def load_pools(self) -> None:
        """Load configured and stored pools without starting sandboxes."""
        now = datetime.now(UTC)
        for settings in self._config.pools:
            kind = None if settings.kind is None else self._kinds.get(settings.kind)
            image = settings.image or (kind.image if kind else "")
            limits = self._resolve_limits(SandboxLimits(**settings.limits.model_dump()), kind)
            facts = settings.model_dump(include={"name", "kind", "size", "user"})
            pool = SandboxPool(tenant=SHARED_TENANT, image=image, limits=limits, created_at=now, **facts)
            self._states[SHARED_TENANT, pool.name] = _PoolState(pool)
        for pool in await self._store.list():
            self._states[pool.tenant, pool.name] = _PoolState(pool)

    async def create(
        self,
        tenant: str,
        name: str,
        image: str | None,
        size: int,
        limits: SandboxLimits,
        kind: str | None = None,
        max_total: int | None = None,
        user: Literal["root"] | None = None,
    ) -> SandboxPool:
        """Create a pool of an image, or of a kind and its image. Raises `InvalidInput` when neither is given."""
        known = None if kind is None else self._kinds.get(kind)
        image = image or (known.image if known else None)
        if image is None:
            raise InvalidInput("a pool needs an image or a kind; give one")
        if (SHARED_TENANT, name) in self._states:
            raise Conflict(f"pool {name} is already defined in the configuration")
        self._images.resolve(image)
        pool = SandboxPool(
            name=name,
            tenant=tenant,
            image=image,
            kind=kind,
            size=size,
            max_total=max_total,
            limits=self._resolve_limits(limits, known),
            user=user,
            created_at=datetime.now(UTC),
        )
        await self._store.insert(pool)
        self._states[tenant, name] = _PoolState(pool)
        self._changed.set()
        return pool

    async def get(self, tenant: str, name: str) -> SandboxPool:
        return self._find(tenant, name).pool

    async def list(self, tenant: str) -> Sequence[SandboxPool]:
        return sorted((state.pool for state in self._states_open_to(tenant)), key=lambda pool: pool.name)

    async def resize(self, tenant: str, name: str, size: int, max_total: int | None = None) -> SandboxPool:
        """Change the size, and the upper bound if given."""
        state = self._find_own(tenant, name)
        bound = {} if max_total is None else {"max_total": max_total}
        state.pool = await self._store.update(tenant, name, size=size, **bound)
        capacity = await self._capacity(state)
        while len(state.sandboxes) > capacity:
            self.spawn(self._backend.remove(state.sandboxes.popleft().id))
        self._changed.set()
        return state.pool

    async def delete(self, tenant: str, name: str) -> None:
        state = self._find_own(tenant, name)
        await self._store.delete(tenant, name)
        del self._states[tenant, name]
        await self._remove_ready(state)

    async def allocated_counts(self, tenant: str) -> Mapping[str, int]:
        """Count the living sandboxes that a tenant took from pools, by pool."""
        return await self._store.allocated(str(tenant))

    def ready_counts(self, tenant: str, name: str) -> tuple[int, int]:
        """Return the numbers of ready and of starting sandboxes."""
        state = self._find(tenant, name)
        return len(state.sandboxes), state.starting

    def sandbox_ids(self) -> set[str]:
        return {sandbox.id for state in self._states.values() for sandbox in state.sandboxes}

    def take_ready(
        self,
        tenant: str,
        request: SandboxRequest,
        image: Image,
        limits: SandboxLimits,
        kind: str | None,
        user: Literal["root"] | None = None,
    ) -> ReadyPoolSandbox | None:
        """Take a ready sandbox for this request, if a matching pool has one.

        It counts as allocated; call `release_claim` once its record is stored.
        """
        if request.snapshot or request.volumes or request.uplink_services or request.credential_vault:
            return None
        for state in self._matching_states(tenant, request, image, (limits, kind, user)):
            while state.sandboxes:
                sandbox = state.sandboxes.popleft()
                self._changed.set()
                if sandbox.digest == image.digest:
                    state.claims.add(sandbox.id)
                    return sandbox
                self.spawn(self._backend.remove(sandbox.id))  # Its image has been rebuilt since.
        return None

    def release_claim(self, sandbox_id: str) -> None:
        """Stop counting a claim: the sandbox's record is stored, or never will be."""
        for state in self._states.values():
            state.claims.discard(sandbox_id)
        self._changed.set()

    @asynccontextmanager
    async def start_slot(self, tenant: str) -> AsyncIterator[None]:
        """Hold a slot for starting a requested sandbox."""
        self._waiting_requests += 1
        tenant_slots = self._tenant_slots.setdefault(tenant, asyncio.Semaphore(self._slots_per_tenant))
        try:
            async with tenant_slots, self._slots:
                yield
        finally:
            self._waiting_requests -= 1
            self._changed.set()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for state in self._states.values():
            await self._remove_ready(state)

    def _matching_states(
        self,
        tenant: str,
        request: SandboxRequest,
        image: Image,
        settings: tuple[SandboxLimits, str | None, Literal["root"] | None],
    ) -> Sequence[_PoolState]:
        if request.pool is not None:
            return [self._find(tenant, request.pool)]
        alike = [r for r in self._states_open_to(tenant) if (r.pool.limits, r.pool.kind, r.pool.user) == settings]
        # An image has several names; digests of ready sandboxes identify the pool's image.
        return [
            r
            for r in alike
            if r.pool.image == image.name or any(sandbox.digest == image.digest for sandbox in r.sandboxes)
        ]

    def _states_open_to(self, tenant: str) -> Sequence[_PoolState]:
        return [state for key, state in self._states.items() if key[0] in (tenant, SHARED_TENANT)]

    def _find(self, tenant: str, name: str) -> _PoolState:
        found = self._states.get((tenant, name)) or self._states.get((SHARED_TENANT, name))
        if found is None:
            raise PoolNotFound(f"there is no pool {name}")
        return found

    def _find_own(self, tenant: str, name: str) -> _PoolState:
        state = self._find(tenant, name)
        if state.pool.tenant != tenant:
            raise Forbidden(f"pool {name} is defined in the configuration; change it there")
        return state

    def _resolve_limits(self, limits: SandboxLimits, kind: SandboxKind | None) -> SandboxLimits:
        return self._kinds.default_limits(kind).model_copy(update=limits.model_dump(exclude_none=True))

    async def _remove_ready(self, state: _PoolState) -> None:
        while state.sandboxes:
            await self._backend.remove(state.sandboxes.popleft().id)

    async def _refill(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            for state in list(self._states.values()):
                if loop.time() < state.retry_at:
                    continue
                missing = await self._missing_count(state)
                for _ in range(
                    min(missing, MAX_CONCURRENT_STARTS - len(self.starting_ids)) if self._waiting_requests == 0 else 0
                ):
                    sandbox_id = new_id()
                    self.starting_ids.add(sandbox_id)
                    state.starting += 1
                    self.spawn(self._start_ready(state, sandbox_id))
            try:
                # Unlike wait_for, this cannot swallow a simultaneous cancellation.
                async with asyncio.timeout(RETRY_DELAY):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _missing_count(self, state: _PoolState) -> int:
        """Count the sandboxes to start. A sandbox that is taken meanwhile counts twice rather than not at all."""
        held = len(state.sandboxes) + state.starting
        if held >= state.pool.size:
            return 0
        try:
            return await self._capacity(state) - held
        except PaddockError as error:
            state.retry_at = asyncio.get_running_loop().time() + RETRY_DELAY
            log.warning("cannot count allocated sandboxes of pool", pool=state.pool.name, error=str(error))
            return 0

    async def _capacity(self, state: _PoolState) -> int:
        """Count the sandboxes that may be ready or starting, by the pool's size and upper bound."""
        pool, claims = state.pool, len(state.claims)
        if pool.max_total is None:
            return pool.size
        allocated = (await self._store.allocated(pool.tenant)).get(pool.name, 0)
        return max(0, min(pool.size, pool.max_total - allocated - claims))

    async def _start_ready(self, state: _PoolState, sandbox_id: str) -> None:
        pool = state.pool
        try:
            image = self._images.resolve(pool.image)
            spec = SandboxSpec(
                id=sandbox_id,
                image=image,
                token=secrets.token_urlsafe(32),
                hostname=sandbox_id,
                env={} if pool.kind is None else {KIND_VARIABLE: pool.kind},
                limits=pool.limits,
                user=pool.user,
                uplink_services=self._uplink_services,
            )
            async with self._slots:
                record = await self._backend.start(spec)
            try:
                await self._wait_for_display(spec, record)
                capacity = await self._capacity(state)
            except BaseException:
                await asyncio.shield(self._backend.remove(spec.id))
                raise
            sandbox = ReadyPoolSandbox(spec.id, spec.token, pool.name, image.digest, pool.limits, record)
            wanted = self._states.get((pool.tenant, pool.name)) is state
            if wanted and len(state.sandboxes) < capacity:
                state.sandboxes.append(sandbox)
                self.spawn(self._watch(state, sandbox))
            else:
                await self._backend.remove(spec.id)
        except PaddockError as error:
            state.retry_at = asyncio.get_running_loop().time() + RETRY_DELAY
            log.warning("cannot fill pool; will retry", pool=pool.name, error=str(error))
        finally:
            self.starting_ids.discard(sandbox_id)
            state.starting -= 1
            self._changed.set()

    async def _wait_for_display(self, spec: SandboxSpec, record: Mapping[str, Any]) -> None:
        """Wait for the display, so that a claimed sandbox with a screen shows a picture at once."""
        if any(service.name == DISPLAY_SERVICE for service in spec.image.services):
            from paddock.sandbox.daemon.client import DaemonClient

            async with DaemonClient(self._backend.daemon_address(record)) as client:
                await wait_for_display(client)

    async def _watch(self, state: _PoolState, sandbox: ReadyPoolSandbox) -> None:
        await self._backend.wait(sandbox.record)
        if sandbox in state.sandboxes:
            state.sandboxes.remove(sandbox)
            await self._backend.remove(sandbox.id)
            self._changed.set()
