"""Routes for snapshots: the files a sandbox has written, kept to start other sandboxes from."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import AwareDatetime, Field

from paddock.api.http.authorization import SandboxReader, SandboxWriter
from paddock.api.http.body_models import RequestBody, ResponseBody
from paddock.api.http.error_responses import openapi_errors
from paddock.api.http.numbered_pages import PageNumber, PageSize, Pagination
from paddock.api.services import ApiServices
from paddock.model.sandbox import SandboxSnapshot, SnapshotState

NO_LIMIT = 100_000


class CreateSnapshotRequest(RequestBody):
    name: str | None = Field(default=None, min_length=1, max_length=200)


class SnapshotStatus(ResponseBody):
    state: SnapshotState
    reason: str | None = None
    message: str | None = None
    last_transition_at: AwareDatetime | None = None


class SnapshotResponse(ResponseBody):
    id: str = Field(examples=["snap-0123456789abcdef"])
    sandbox_id: str
    name: str | None = None
    status: SnapshotStatus
    created_at: AwareDatetime

    @classmethod
    def from_snapshot(cls, snapshot: SandboxSnapshot) -> SnapshotResponse:
        status = SnapshotStatus(
            state=snapshot.state,
            reason=snapshot.reason,
            message=snapshot.message,
            last_transition_at=snapshot.changed_at,
        )
        return cls(
            id=snapshot.id,
            sandbox_id=snapshot.sandbox_id,
            name=snapshot.name,
            status=status,
            created_at=snapshot.created_at,
        )


class SnapshotListResponse(ResponseBody):
    items: list[SnapshotResponse]
    pagination: Pagination


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["Snapshots"])
    fleet = services.fleet

    @router.post(
        "/sandboxes/{sandbox_id}/snapshots",
        status_code=202,
        responses=openapi_errors(404, 409, 429),
        response_model_exclude_none=True,
    )
    async def create_snapshot(
        sandbox_id: str, principal: SandboxWriter, response: Response, body: CreateSnapshotRequest | None = None
    ) -> SnapshotResponse:
        """Snapshot the files a sandbox has written; the snapshot becomes Ready a little later."""
        snapshot = await fleet.snapshot(principal.tenant, sandbox_id, body.name if body else None)
        response.headers["Location"] = f"/v1/snapshots/{snapshot.id}"
        return SnapshotResponse.from_snapshot(snapshot)

    @router.get("/snapshots", responses=openapi_errors(), response_model_exclude_none=True)
    async def list_snapshots(
        principal: SandboxReader,
        sandbox_id: Annotated[str | None, Query(alias="sandboxId")] = None,
        name: str | None = None,
        state: Annotated[list[str] | None, Query(description="Unknown states match nothing.")] = None,
        page: PageNumber = 1,
        page_size: PageSize = 20,
    ) -> SnapshotListResponse:
        """List snapshots, newest first."""
        states = [each for each in SnapshotState if each in state] if state else None
        if name is None:
            found, total = await fleet.snapshots.list(
                principal.tenant,
                sandbox_id=sandbox_id,
                states=states,
                page=page,
                page_size=page_size,
            )
        else:
            matching, _ = await fleet.snapshots.list(
                principal.tenant,
                sandbox_id=sandbox_id,
                states=states,
                page_size=NO_LIMIT,
            )
            named = [snapshot for snapshot in matching if snapshot.name == name]
            found, total = named[(page - 1) * page_size : page * page_size], len(named)
        items = [SnapshotResponse.from_snapshot(snapshot) for snapshot in found]
        return SnapshotListResponse(items=items, pagination=Pagination.for_total(page, page_size, total))

    @router.get("/snapshots/{snapshot_id}", responses=openapi_errors(404), response_model_exclude_none=True)
    async def get_snapshot(snapshot_id: str, principal: SandboxReader) -> SnapshotResponse:
        """Return one snapshot."""
        return SnapshotResponse.from_snapshot(await fleet.snapshots.get(snapshot_id, principal.tenant))

    @router.delete("/snapshots/{snapshot_id}", status_code=204, responses=openapi_errors(404, 409))
    async def delete_snapshot(snapshot_id: str, principal: SandboxWriter) -> None:
        """Delete a snapshot. Sandboxes made from it keep running."""
        await fleet.delete_snapshot(principal.tenant, snapshot_id)

    return router
