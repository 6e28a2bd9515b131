"""Boxes started ahead of need.

A box of a pool has never been anybody's: it is claimed once and removed when its sandbox ends. Pools of the
configuration belong to nobody and serve every tenant; the others serve the tenant that made them.
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
from typing import Any
from weakref import WeakValueDictionary

import structlog

from paddock.config.schema import Config
from paddock.errors import Conflict, Forbidden, InvalidInput, PaddockError, PoolNotFound
from paddock.fleet.displays import DISPLAY, wait_until_shown
from paddock.fleet.kinds import Kinds
from paddock.fleet.requests import CreateSandbox, ImageSource, new_id
from paddock.model.sandbox import KIND_VARIABLE, BoxSpec, Hole, Image, Limits, Pool
from paddock.model.screens import Kind
from paddock.sandbox.base import Backend
from paddock.store.pools import PoolStore

EVERYBODY = ""
RETRY = 5.0
AT_ONCE = 2
"""Boxes started ahead of need at the same time."""
log = structlog.get_logger()


@dataclass(frozen=True)
class Ready:
    """A box that waits to be claimed."""

    id: str
    token: str
    pool: str
    digest: str
    limits: Limits
    record: Mapping[str, Any]


@dataclass
class _Reservoir:
    pool: Pool
    boxes: deque[Ready] = field(default_factory=deque)
    claims: set[str] = field(default_factory=set)
    """Boxes taken whose sandboxes are not stored yet."""
    starting: int = 0
    retry_at: float = 0.0


class Pools:
    """Keeps every pool full, behind the backs of those who take from it."""

    def __init__(
        self,
        backend: Backend,
        images: ImageSource,
        kinds: Kinds,
        store: PoolStore,
        config: Config,
        holes: tuple[Hole, ...] = (),
    ) -> None:
        self._backend = backend
        self._images = images
        self._kinds = kinds
        self._store = store
        self._config = config
        self._holes = holes
        """What every box can reach, whosever it becomes."""
        self._reservoirs: dict[tuple[str, str], _Reservoir] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        slots = max(4, 2 * (os.cpu_count() or 1))
        self._slots = asyncio.Semaphore(slots)
        self._share = slots // 2
        self._shares: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        """What one tenant may take of the slots: a box can take long to start on purpose."""
        self._wanted = 0
        """Boxes somebody is waiting for; refilling stands back while there are any."""
        self._changed = asyncio.Event()
        self.being_started: set[str] = set()

    async def open(self) -> None:
        await self.load()
        self.spawn(self._refill())

    async def load(self) -> None:
        """Read which pools there are, without starting anything."""
        now = datetime.now(UTC)
        for settings in self._config.pools:
            kind = None if settings.kind is None else self._kinds.get(settings.kind)
            image = settings.image or (kind.image if kind else "")
            limits = self._merged(Limits(**settings.limits.model_dump()), kind)
            facts = settings.model_dump(include={"name", "kind", "size"})
            pool = Pool(tenant=EVERYBODY, image=image, limits=limits, created_at=now, **facts)
            self._reservoirs[EVERYBODY, pool.name] = _Reservoir(pool)
        for pool in await self._store.list():
            self._reservoirs[pool.tenant, pool.name] = _Reservoir(pool)

    async def create(
        self,
        tenant: str,
        name: str,
        image: str | None,
        size: int,
        limits: Limits,
        kind: str | None = None,
        max_total: int | None = None,
    ) -> Pool:
        """Keep boxes ready, of an image, or of a kind and its image. Raises `InvalidInput` when neither is given."""
        known = None if kind is None else self._kinds.get(kind)
        image = image or (known.image if known else None)
        if image is None:
            raise InvalidInput("a pool needs an image or a kind; give one")
        if (EVERYBODY, name) in self._reservoirs:
            raise Conflict(f"a pool {name} is in the configuration already")
        self._images.resolve(image)
        pool = Pool(
            name=name,
            tenant=tenant,
            image=image,
            kind=kind,
            size=size,
            max_total=max_total,
            limits=self._merged(limits, known),
            created_at=datetime.now(UTC),
        )
        await self._store.insert(pool)
        self._reservoirs[tenant, name] = _Reservoir(pool)
        self._changed.set()
        return pool

    async def get(self, tenant: str, name: str) -> Pool:
        return self._find(tenant, name).pool

    async def list(self, tenant: str) -> Sequence[Pool]:
        return sorted((reservoir.pool for reservoir in self._open_to(tenant)), key=lambda pool: pool.name)

    async def resize(self, tenant: str, name: str, size: int, max_total: int | None = None) -> Pool:
        """Change the size, and the upper bound if one is given."""
        reservoir = self._own(tenant, name)
        bound = {} if max_total is None else {"max_total": max_total}
        reservoir.pool = await self._store.update(tenant, name, size=size, **bound)
        room = await self._room(reservoir)
        while len(reservoir.boxes) > room:
            self.spawn(self._backend.remove(reservoir.boxes.popleft().id))
        self._changed.set()
        return reservoir.pool

    async def delete(self, tenant: str, name: str) -> None:
        reservoir = self._own(tenant, name)
        await self._store.delete(tenant, name)
        del self._reservoirs[tenant, name]
        await self._empty(reservoir)

    async def allocated(self, tenant: str) -> Mapping[str, int]:
        """Count the living sandboxes that a tenant took from pools, by pool."""
        return await self._store.allocated(str(tenant))

    def counts(self, tenant: str, name: str) -> tuple[int, int]:
        """How many boxes are ready, and how many are being started."""
        reservoir = self._find(tenant, name)
        return len(reservoir.boxes), reservoir.starting

    def box_ids(self) -> set[str]:
        return {box.id for reservoir in self._reservoirs.values() for box in reservoir.boxes}

    def take(self, tenant: str, request: CreateSandbox, image: Image, limits: Limits, kind: str | None) -> Ready | None:
        """A ready box for this request, if a pool fits it and has one.

        It counts as allocated; call `release_claim` once its sandbox is stored.
        """
        if request.snapshot or request.volumes or request.holes:
            return None
        for reservoir in self._candidates(tenant, request, image, limits, kind):
            while reservoir.boxes:
                box = reservoir.boxes.popleft()
                self._changed.set()
                if box.digest == image.digest:
                    reservoir.claims.add(box.id)
                    return box
                self.spawn(self._backend.remove(box.id))  # Its image has been built anew since.
        return None

    def release_claim(self, box_id: str) -> None:
        """Stop counting a box that was taken: its sandbox is stored, or will never be."""
        for reservoir in self._reservoirs.values():
            reservoir.claims.discard(box_id)
        self._changed.set()

    @asynccontextmanager
    async def starting(self, tenant: str) -> AsyncIterator[None]:
        """Room to start a box that somebody waits for."""
        self._wanted += 1
        share = self._shares.setdefault(tenant, asyncio.Semaphore(self._share))
        try:
            async with share, self._slots:
                yield
        finally:
            self._wanted -= 1
            self._changed.set()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for reservoir in self._reservoirs.values():
            await self._empty(reservoir)

    def _candidates(
        self, tenant: str, request: CreateSandbox, image: Image, limits: Limits, kind: str | None
    ) -> Sequence[_Reservoir]:
        if request.pool is not None:
            return [self._find(tenant, request.pool)]
        alike = [r for r in self._open_to(tenant) if (r.pool.limits, r.pool.kind) == (limits, kind)]
        # An image has several names; what is in the pool already tells which one its own name means.
        return [r for r in alike if r.pool.image == image.name or any(box.digest == image.digest for box in r.boxes)]

    def _open_to(self, tenant: str) -> Sequence[_Reservoir]:
        return [reservoir for key, reservoir in self._reservoirs.items() if key[0] in (tenant, EVERYBODY)]

    def _find(self, tenant: str, name: str) -> _Reservoir:
        found = self._reservoirs.get((tenant, name)) or self._reservoirs.get((EVERYBODY, name))
        if found is None:
            raise PoolNotFound(f"there is no pool {name}")
        return found

    def _own(self, tenant: str, name: str) -> _Reservoir:
        reservoir = self._find(tenant, name)
        if reservoir.pool.tenant != tenant:
            raise Forbidden(f"pool {name} is set in the configuration; change it there")
        return reservoir

    def _merged(self, limits: Limits, kind: Kind | None) -> Limits:
        return self._kinds.limits(kind).model_copy(update=limits.model_dump(exclude_none=True))

    async def _empty(self, reservoir: _Reservoir) -> None:
        while reservoir.boxes:
            await self._backend.remove(reservoir.boxes.popleft().id)

    async def _refill(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            for reservoir in list(self._reservoirs.values()):
                if loop.time() < reservoir.retry_at:
                    continue
                lacking = await self._lacking(reservoir)
                for _ in range(min(lacking, AT_ONCE - len(self.being_started)) if self._wanted == 0 else 0):
                    box_id = new_id()
                    self.being_started.add(box_id)
                    reservoir.starting += 1
                    self.spawn(self._add(reservoir, box_id))
            try:
                # Unlike wait_for, this cannot swallow a cancellation that comes in the same moment.
                async with asyncio.timeout(RETRY):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _lacking(self, reservoir: _Reservoir) -> int:
        """Count the boxes to start. A box that is taken meanwhile counts twice rather than not at all."""
        held = len(reservoir.boxes) + reservoir.starting
        if held >= reservoir.pool.size:
            return 0
        try:
            return await self._room(reservoir) - held
        except PaddockError as error:
            reservoir.retry_at = asyncio.get_running_loop().time() + RETRY
            log.warning("could not count allocated sandboxes of pool", pool=reservoir.pool.name, error=str(error))
            return 0

    async def _room(self, reservoir: _Reservoir) -> int:
        """Count the boxes that may be ready or starting, by the pool's size and upper bound."""
        pool, claims = reservoir.pool, len(reservoir.claims)
        if pool.max_total is None:
            return pool.size
        allocated = (await self._store.allocated(pool.tenant)).get(pool.name, 0)
        return max(0, min(pool.size, pool.max_total - allocated - claims))

    async def _add(self, reservoir: _Reservoir, box_id: str) -> None:
        pool = reservoir.pool
        try:
            image = self._images.resolve(pool.image)
            spec = BoxSpec(
                id=box_id,
                image=image,
                token=secrets.token_urlsafe(32),
                hostname=box_id,
                env={} if pool.kind is None else {KIND_VARIABLE: pool.kind},
                limits=pool.limits,
                holes=self._holes,
            )
            async with self._slots:
                record = await self._backend.start(spec)
            try:
                await self._wait_for_display(spec, record)
                room = await self._room(reservoir)
            except BaseException:
                await asyncio.shield(self._backend.remove(spec.id))
                raise
            box = Ready(spec.id, spec.token, pool.name, image.digest, pool.limits, record)
            wanted = self._reservoirs.get((pool.tenant, pool.name)) is reservoir
            if wanted and len(reservoir.boxes) < room:
                reservoir.boxes.append(box)
                self.spawn(self._watch(reservoir, box))
            else:
                await self._backend.remove(spec.id)
        except PaddockError as error:
            reservoir.retry_at = asyncio.get_running_loop().time() + RETRY
            log.warning("pool could not be filled", pool=pool.name, error=str(error))
        finally:
            self.being_started.discard(box_id)
            reservoir.starting -= 1
            self._changed.set()

    async def _wait_for_display(self, spec: BoxSpec, record: Mapping[str, Any]) -> None:
        """Whoever gets a box with a screen from a pool sees a picture at once, so it is not ready before."""
        if any(service.name == DISPLAY for service in spec.image.services):
            from paddock.sandbox.client import Inside

            async with Inside(self._backend.address(record)) as client:
                await wait_until_shown(client)

    async def _watch(self, reservoir: _Reservoir, box: Ready) -> None:
        await self._backend.wait(box.record)
        if box in reservoir.boxes:
            reservoir.boxes.remove(box)
            await self._backend.remove(box.id)
            self._changed.set()
