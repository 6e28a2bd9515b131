"""What was asked of people, and who decided what and when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Response

from paddock.api.access import SessionReader
from paddock.api.errors import documented
from paddock.api.services import Services
from paddock.api.session_messages import ApprovalList, Before, Page, PageSize, said, sliced
from paddock.model.sessions import Approval, ApprovalState

State = Annotated[ApprovalState | None, Query(description="Only those in this state.")]


def routes(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["Sessions"])
    sessions = services.sessions

    async def listed(
        tenant: str, session: str | None, state: ApprovalState | None, before: str | None, page: int, size: int
    ) -> Response:
        async def read(limit: int, place: str | None) -> Sequence[Approval]:
            return await sessions.approvals(tenant, session=session, state=state, before=place, limit=limit)

        items, pagination = await sliced(read, lambda approval: approval.id, page, size, before)
        more = items[-1].id if pagination.has_next_page else None
        return said(ApprovalList(items=items, pagination=pagination, next=more))

    @router.get("/approvals", responses={**documented(404), 200: {"model": ApprovalList}}, response_model=None)
    async def list_approvals(
        principal: SessionReader,
        state: State = None,
        before: Before = None,
        page: Page = 1,
        page_size: PageSize = 100,
    ) -> Response:
        """What was asked of people in all sessions of the tenant, the newest first."""
        return await listed(principal.tenant, None, state, before, page, page_size)

    @router.get(
        "/sessions/{session_id}/approvals",
        responses={**documented(404), 200: {"model": ApprovalList}},
        response_model=None,
    )
    async def list_session_approvals(
        session_id: str,
        principal: SessionReader,
        state: State = None,
        before: Before = None,
        page: Page = 1,
        page_size: PageSize = 100,
    ) -> Response:
        """What was asked of people in one session, the newest first."""
        session = await sessions.get(principal.tenant, session_id)
        return await listed(principal.tenant, session.id, state, before, page, page_size)

    return router
