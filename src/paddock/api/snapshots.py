"""Snapshots: what a sandbox has written, kept to start others from."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import AwareDatetime, Field

from paddock.api.access import Reader, Writer
from paddock.api.errors import documented
from paddock.api.sandboxes import Page, PageSize
from paddock.api.services import Services
from paddock.api.wire import Asked, Pagination, Said
from paddock.model.sandbox import Snapshot, SnapshotState

EVERYTHING = 100_000


class SnapshotBody(Asked):
    name: str | None = Field(default=None, min_length=1, max_length=200)


class SnapshotStatus(Said):
    state: SnapshotState
    reason: str | None = None
    message: str | None = None
    last_transition_at: AwareDatetime | None = None


class SnapshotSaid(Said):
    id: str = Field(examples=["snap-0123456789abcdef"])
    sandbox_id: str
    name: str | None = None
    status: SnapshotStatus
    created_at: AwareDatetime

    @classmethod
    def of(cls, snapshot: Snapshot) -> SnapshotSaid:
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


class SnapshotList(Said):
    items: list[SnapshotSaid]
    pagination: Pagination


def routes(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["Snapshots"])
    fleet = services.fleet

    @router.post(
        "/sandboxes/{sandbox_id}/snapshots",
        status_code=202,
        responses=documented(404, 409, 429),
        response_model_exclude_none=True,
    )
    async def create_snapshot(
        sandbox_id: str, principal: Writer, response: Response, body: SnapshotBody | None = None
    ) -> SnapshotSaid:
        """Keep what a sandbox has written; the snapshot becomes Ready a little later."""
        snapshot = await fleet.snapshot(principal.tenant, sandbox_id, body.name if body else None)
        response.headers["Location"] = f"/v1/snapshots/{snapshot.id}"
        return SnapshotSaid.of(snapshot)

    @router.get("/snapshots", responses=documented(), response_model_exclude_none=True)
    async def list_snapshots(
        principal: Reader,
        sandbox_id: Annotated[str | None, Query(alias="sandboxId")] = None,
        name: str | None = None,
        state: Annotated[list[str] | None, Query(description="One there is not matches nothing.")] = None,
        page: Page = 1,
        page_size: PageSize = 20,
    ) -> SnapshotList:
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
                page_size=EVERYTHING,
            )
            named = [snapshot for snapshot in matching if snapshot.name == name]
            found, total = named[(page - 1) * page_size : page * page_size], len(named)
        items = [SnapshotSaid.of(snapshot) for snapshot in found]
        return SnapshotList(items=items, pagination=Pagination.of(page, page_size, total))

    @router.get("/snapshots/{snapshot_id}", responses=documented(404), response_model_exclude_none=True)
    async def get_snapshot(snapshot_id: str, principal: Reader) -> SnapshotSaid:
        """All that is known of one snapshot."""
        return SnapshotSaid.of(await fleet.snapshots.get(snapshot_id, principal.tenant))

    @router.delete("/snapshots/{snapshot_id}", status_code=204, responses=documented(404, 409))
    async def delete_snapshot(snapshot_id: str, principal: Writer) -> None:
        """Forget a snapshot. Sandboxes made from it go on."""
        await fleet.delete_snapshot(principal.tenant, snapshot_id)

    return router
