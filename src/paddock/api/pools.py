"""Pools: sandboxes started ahead of need.

OpenSandbox describes a pool by a Kubernetes pod template and four bounds. Of the template the first container's image
and resource limits count; of the bounds `bufferMax`, the number of boxes kept ready, and `poolMax`, the upper bound of
ready and allocated boxes together. A pool of a kind needs no template: its boxes have the kind's image and limits.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter
from fastapi import Path as PathParameter
from pydantic import AwareDatetime, Field

from paddock.api.access import Reader, Writer
from paddock.api.creation import to_limits
from paddock.api.errors import documented
from paddock.api.services import Services
from paddock.api.wire import Asked, Said
from paddock.errors import InvalidInput
from paddock.model.sandbox import Limits, Pool

LARGEST = 1000
MOST = 2**31 - 1
NAME = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"


class Capacity(Asked):
    buffer_max: int = Field(ge=0, le=LARGEST)
    buffer_min: int = Field(default=0, ge=0, le=LARGEST)
    pool_max: int = Field(default=LARGEST, ge=0, le=MOST)
    pool_min: int = Field(default=0, ge=0, le=MOST)


class CreatePoolBody(Asked):
    name: str = Field(pattern=NAME, examples=["ready"])
    template: dict[str, Any] | None = Field(default=None, examples=[{"spec": {"containers": [{"image": "code"}]}}])
    kind: str | None = Field(default=None, examples=["linux"])
    capacity_spec: Capacity


class UpdatePoolBody(Asked):
    capacity_spec: Capacity


class CapacitySaid(Said):
    buffer_max: int
    buffer_min: int
    pool_max: int
    pool_min: int


class PoolStatus(Said):
    total: int
    allocated: int
    available: int
    revision: str


class PoolSaid(Said):
    name: str
    kind: str | None = None
    capacity_spec: CapacitySaid
    status: PoolStatus
    created_at: AwareDatetime


class PoolList(Said):
    items: list[PoolSaid]


Name = Annotated[str, PathParameter(max_length=253)]


def routes(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1/pools", tags=["Pools"])
    pools = services.fleet.pools

    def said(tenant: str, pool: Pool, allocated: int) -> PoolSaid:
        available, starting = pools.counts(tenant, pool.name)
        return PoolSaid(
            name=pool.name,
            kind=pool.kind,
            capacity_spec=CapacitySaid(
                buffer_max=pool.size,
                buffer_min=pool.size,
                pool_max=LARGEST if pool.max_total is None else pool.max_total,
                pool_min=0,
            ),
            status=PoolStatus(
                total=available + starting + allocated, allocated=allocated, available=available, revision=pool.image
            ),
            created_at=pool.created_at,
        )

    @router.post("", status_code=201, responses=documented(404, 409))
    async def create_pool(body: CreatePoolBody, principal: Writer) -> PoolSaid:
        """Keep sandboxes of one image or kind ready; `extensions.poolRef` takes one."""
        image, limits = _template(body.template, needs_image=body.kind is None)
        capacity = _checked(body.capacity_spec)
        pool = await pools.create(
            principal.tenant, body.name, image, capacity.buffer_max, limits, body.kind, capacity.pool_max
        )
        return said(principal.tenant, pool, 0)

    @router.get("", responses=documented())
    async def list_pools(principal: Reader) -> PoolList:
        """List the pools of the tenant and those of the configuration."""
        counts = await pools.allocated(principal.tenant)
        found = await pools.list(principal.tenant)
        return PoolList(items=[said(principal.tenant, pool, counts.get(pool.name, 0)) for pool in found])

    @router.get("/{pool_name}", responses=documented(404))
    async def get_pool(pool_name: Name, principal: Reader) -> PoolSaid:
        """One pool and how many of its sandboxes are ready."""
        pool = await pools.get(principal.tenant, pool_name)
        counts = await pools.allocated(principal.tenant)
        return said(principal.tenant, pool, counts.get(pool.name, 0))

    @router.put("/{pool_name}", responses=documented(404, 409))
    async def update_pool(pool_name: Name, body: UpdatePoolBody, principal: Writer) -> PoolSaid:
        """Keep more or fewer ready. Without `poolMax` the pool keeps its upper bound."""
        capacity = _checked(body.capacity_spec)
        most = capacity.pool_max if "pool_max" in capacity.model_fields_set else None
        pool = await pools.resize(principal.tenant, pool_name, capacity.buffer_max, most)
        counts = await pools.allocated(principal.tenant)
        return said(principal.tenant, pool, counts.get(pool.name, 0))

    @router.delete("/{pool_name}", status_code=204, responses=documented(404, 409))
    async def delete_pool(pool_name: Name, principal: Writer) -> None:
        """Keep none ready any more. Sandboxes taken from it go on."""
        await pools.delete(principal.tenant, pool_name)

    return router


def _checked(capacity: Capacity) -> Capacity:
    if capacity.buffer_min > capacity.buffer_max:
        raise InvalidInput("capacitySpec: bufferMin is more than bufferMax")
    if capacity.pool_min > capacity.pool_max:
        raise InvalidInput("capacitySpec: poolMin is more than poolMax")
    return capacity


def _template(template: dict[str, Any] | None, needs_image: bool) -> tuple[str | None, Limits]:
    if template is None and not needs_image:
        return None, Limits()
    try:
        container = (template or {})["spec"]["containers"][0]
        image = container.get("image") if not needs_image else container["image"]
        limits = (container.get("resources") or {}).get("limits") or {}
        well_formed = isinstance(image or "", str) and isinstance(limits, dict)
    except (KeyError, IndexError, TypeError, AttributeError):
        well_formed = False
    if not well_formed or (needs_image and not (image or "").strip()):
        raise InvalidInput("template: give the image as template.spec.containers[0].image, or a kind instead")
    return (image or "").strip() or None, to_limits({str(name): value for name, value in limits.items()})
