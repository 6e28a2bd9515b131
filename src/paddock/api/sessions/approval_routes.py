"""Routes that list approvals: calls that people were asked about, and their decisions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Response

from paddock.api.http.authorization import SessionReader
from paddock.api.http.error_responses import openapi_errors
from paddock.api.http.numbered_pages import PageSize
from paddock.api.services import ApiServices
from paddock.api.sessions.session_bodies import (
    ApprovalListResponse,
    BeforeCursor,
    SessionPageNumber,
    json_response,
    read_listing_page,
)
from paddock.model.sessions import Approval, ApprovalState

StateFilter = Annotated[ApprovalState | None, Query(description="Only approvals in this state.")]


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["Sessions"])
    sessions = services.sessions

    async def list_page(
        tenant: str, session: str | None, state: ApprovalState | None, before: str | None, page: int, size: int
    ) -> Response:
        async def read(limit: int, cursor: str | None) -> Sequence[Approval]:
            return await sessions.list_approvals(tenant, session=session, state=state, before=cursor, limit=limit)

        items, pagination = await read_listing_page(read, lambda approval: approval.id, page, size, before)
        next_cursor = items[-1].id if pagination.has_next_page else None
        return json_response(ApprovalListResponse(items=items, pagination=pagination, next=next_cursor))

    @router.get(
        "/approvals", responses={**openapi_errors(404), 200: {"model": ApprovalListResponse}}, response_model=None
    )
    async def list_approvals(
        principal: SessionReader,
        state: StateFilter = None,
        before: BeforeCursor = None,
        page: SessionPageNumber = 1,
        page_size: PageSize = 100,
    ) -> Response:
        """List the approvals of all sessions of the tenant, newest first."""
        return await list_page(principal.tenant, None, state, before, page, page_size)

    @router.get(
        "/sessions/{session_id}/approvals",
        responses={**openapi_errors(404), 200: {"model": ApprovalListResponse}},
        response_model=None,
    )
    async def list_session_approvals(
        session_id: str,
        principal: SessionReader,
        state: StateFilter = None,
        before: BeforeCursor = None,
        page: SessionPageNumber = 1,
        page_size: PageSize = 100,
    ) -> Response:
        """List the approvals of one session, newest first."""
        session = await sessions.get(principal.tenant, session_id)
        return await list_page(principal.tenant, session.id, state, before, page, page_size)

    return router
