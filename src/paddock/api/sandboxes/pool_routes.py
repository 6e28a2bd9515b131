"""Routes for pools: sandboxes started ahead of need.

OpenSandbox describes a pool by a Kubernetes pod template and four bounds. Of the template, the first container's image
and resource limits are used; of the bounds, `bufferMax`, the number of sandboxes kept ready, and `poolMax`, the upper
bound of ready and allocated sandboxes together. A pool of a kind needs no template: its sandboxes have the kind's
image and limits.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter
from fastapi import Path as PathParameter
from pydantic import AwareDatetime, Field

from paddock.api.http.authorization import SandboxReader, SandboxWriter
from paddock.api.http.body_models import RequestBody, ResponseBody
from paddock.api.http.error_responses import openapi_errors
from paddock.api.sandboxes.create_request import parse_sandbox_limits
from paddock.api.services import ApiServices
from paddock.errors import InvalidInput
from paddock.model.sandbox import SandboxLimits, SandboxPool

MAX_BUFFER = 1000
MAX_POOL = 2**31 - 1
POOL_NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"


class PoolCapacity(RequestBody):
    buffer_max: int = Field(ge=0, le=MAX_BUFFER)
    buffer_min: int = Field(default=0, ge=0, le=MAX_BUFFER)
    pool_max: int = Field(default=MAX_BUFFER, ge=0, le=MAX_POOL)
    pool_min: int = Field(default=0, ge=0, le=MAX_POOL)


class CreatePoolRequest(RequestBody):
    name: str = Field(pattern=POOL_NAME_PATTERN, examples=["ready"])
    template: dict[str, Any] | None = Field(default=None, examples=[{"spec": {"containers": [{"image": "code"}]}}])
    kind: str | None = Field(default=None, examples=["linux"])
    user: Literal["root"] | None = None
    """User of the programs in the sandboxes: `root`; omitted means the image's user."""
    capacity_spec: PoolCapacity


class UpdatePoolRequest(RequestBody):
    capacity_spec: PoolCapacity


class PoolCapacityResponse(ResponseBody):
    buffer_max: int
    buffer_min: int
    pool_max: int
    pool_min: int


class PoolStatus(ResponseBody):
    total: int
    allocated: int
    available: int
    revision: str


class PoolResponse(ResponseBody):
    name: str
    kind: str | None = None
    user: Literal["root"] | None = None
    capacity_spec: PoolCapacityResponse
    status: PoolStatus
    created_at: AwareDatetime


class PoolListResponse(ResponseBody):
    items: list[PoolResponse]


PoolName = Annotated[str, PathParameter(max_length=253)]


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter(prefix="/v1/pools", tags=["Pools"])
    pools = services.fleet.pools

    def to_response(tenant: str, pool: SandboxPool, allocated: int) -> PoolResponse:
        available, starting = pools.ready_counts(tenant, pool.name)
        return PoolResponse(
            name=pool.name,
            kind=pool.kind,
            user=pool.user,
            capacity_spec=PoolCapacityResponse(
                buffer_max=pool.size,
                buffer_min=pool.size,
                pool_max=MAX_BUFFER if pool.max_total is None else pool.max_total,
                pool_min=0,
            ),
            status=PoolStatus(
                total=available + starting + allocated, allocated=allocated, available=available, revision=pool.image
            ),
            created_at=pool.created_at,
        )

    @router.post("", status_code=201, responses=openapi_errors(404, 409))
    async def create_pool(body: CreatePoolRequest, principal: SandboxWriter) -> PoolResponse:
        """Keep sandboxes of one image or kind ready; `extensions.poolRef` takes one."""
        image, limits = _parse_template(body.template, needs_image=body.kind is None)
        capacity = _validate_capacity(body.capacity_spec)
        pool = await pools.create(
            principal.tenant, body.name, image, capacity.buffer_max, limits, body.kind, capacity.pool_max, body.user
        )
        return to_response(principal.tenant, pool, 0)

    @router.get("", responses=openapi_errors())
    async def list_pools(principal: SandboxReader) -> PoolListResponse:
        """List the tenant's pools and the configured ones."""
        counts = await pools.allocated_counts(principal.tenant)
        found = await pools.list(principal.tenant)
        return PoolListResponse(items=[to_response(principal.tenant, pool, counts.get(pool.name, 0)) for pool in found])

    @router.get("/{pool_name}", responses=openapi_errors(404))
    async def get_pool(pool_name: PoolName, principal: SandboxReader) -> PoolResponse:
        """Return one pool and how many of its sandboxes are ready."""
        pool = await pools.get(principal.tenant, pool_name)
        counts = await pools.allocated_counts(principal.tenant)
        return to_response(principal.tenant, pool, counts.get(pool.name, 0))

    @router.put("/{pool_name}", responses=openapi_errors(404, 409))
    async def update_pool(pool_name: PoolName, body: UpdatePoolRequest, principal: SandboxWriter) -> PoolResponse:
        """Resize a pool. Without `poolMax` the pool keeps its upper bound."""
        capacity = _validate_capacity(body.capacity_spec)
        max_total = capacity.pool_max if "pool_max" in capacity.model_fields_set else None
        pool = await pools.resize(principal.tenant, pool_name, capacity.buffer_max, max_total)
        counts = await pools.allocated_counts(principal.tenant)
        return to_response(principal.tenant, pool, counts.get(pool.name, 0))

    @router.delete("/{pool_name}", status_code=204, responses=openapi_errors(404, 409))
    async def delete_pool(pool_name: PoolName, principal: SandboxWriter) -> None:
        """Delete a pool. Sandboxes taken from it keep running."""
        await pools.delete(principal.tenant, pool_name)

    return router


def _validate_capacity(capacity: PoolCapacity) -> PoolCapacity:
    if capacity.buffer_min > capacity.buffer_max:
        raise InvalidInput("capacitySpec: bufferMin is more than bufferMax")
    if capacity.pool_min > capacity.pool_max:
        raise InvalidInput("capacitySpec: poolMin is more than poolMax")
    return capacity


def _parse_template(template: dict[str, Any] | None, needs_image: bool) -> tuple[str | None, SandboxLimits]:
    if template is None and not needs_image:
        return None, SandboxLimits()
    try:
        container = (template or {})["spec"]["containers"][0]
        image = container.get("image") if not needs_image else container["image"]
        limits = (container.get("resources") or {}).get("limits") or {}
        well_formed = isinstance(image or "", str) and isinstance(limits, dict)
    except (KeyError, IndexError, TypeError, AttributeError):
        well_formed = False
    if not well_formed or (needs_image and not (image or "").strip()):
        raise InvalidInput("template: give the image as template.spec.containers[0].image, or a kind instead")
    return (image or "").strip() or None, parse_sandbox_limits({str(name): value for name, value in limits.items()})
