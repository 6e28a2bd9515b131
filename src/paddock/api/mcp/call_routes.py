"""Routes for records of MCP calls."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from paddock.api.http.authorization import McpUser
from paddock.api.http.body_models import UtcDateTime
from paddock.api.http.error_responses import openapi_errors
from paddock.api.mcp.server_bodies import McpCallRecordListResponse, McpCallRecordResponse
from paddock.api.services import ApiServices
from paddock.errors import NotFound
from paddock.model.keys import Principal
from paddock.model.mcp_records import McpCallOutcome
from paddock.store.mcp_call_store import McpCallFilters

IdQuery = Annotated[str | None, Query(min_length=1, max_length=63)]


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter(prefix="/v1/mcp", tags=["MCP"])
    calls, recorder = services.mcp_services.calls, services.mcp_services.gateway.recorder

    async def check_visible(principal: Principal, filters: McpCallFilters) -> bool:
        """Raise `NotFound` for an object that the key cannot see; return true if there is one."""
        if filters.run is not None:
            await services.runs.get(principal.tenant, filters.run)
        if filters.session is not None:
            await services.sessions.get(principal.tenant, filters.session)
        if filters.sandbox is not None:
            await services.fleet.get(principal.tenant, filters.sandbox)
        return any(each is not None for each in (filters.run, filters.session, filters.sandbox))

    @router.get("/calls", responses=openapi_errors(404), response_model_exclude_none=True)
    async def list_mcp_calls(
        principal: McpUser,
        server: IdQuery = None,
        tool: Annotated[
            str | None, Query(min_length=1, max_length=500, description="Tool, prompt or resource.")
        ] = None,
        outcome: Annotated[McpCallOutcome | None, Query()] = None,
        run: IdQuery = None,
        session: IdQuery = None,
        sandbox: IdQuery = None,
        caller: Annotated[str | None, Query(min_length=1, max_length=200, description="Key or user.")] = None,
        since: Annotated[UtcDateTime | None, Query(description="Only calls that started then or later.")] = None,
        before: Annotated[str | None, Query(min_length=1, max_length=63, description="`next` of a page.")] = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> McpCallRecordListResponse:
        """List calls of MCP servers, the newest first.

        Without the scope `tenant:all` these are the key's own calls, or all those of a run, session or sandbox that
        the key can see. Arguments and results are in the answer for one call.
        """
        filters = McpCallFilters(
            server=server,
            target=tool,
            outcome=outcome,
            run=run,
            session=session,
            sandbox=sandbox,
            caller=caller,
            since=since,
        )
        is_of_object = await check_visible(principal, filters)
        await recorder.flush()
        found = await calls.list_calls(
            principal.tenant, filters, before=before, limit=limit + 1, of_visible_object=is_of_object
        )
        items = [
            McpCallRecordResponse.from_record(each).model_copy(update={"arguments": None, "result": None})
            for each in found[:limit]
        ]
        return McpCallRecordListResponse(items=items, next=items[-1].id if len(found) > limit else None)

    @router.get("/calls/{call_id}", responses=openapi_errors(404), response_model_exclude_none=True)
    async def get_mcp_call(call_id: str, principal: McpUser) -> McpCallRecordResponse:
        """Return a call with its arguments and its result."""
        await recorder.flush()
        found = await calls.get(principal.tenant, call_id)
        if found is None or not await _may_see(services, principal, found.caller, found.run, found.session):
            raise NotFound(f"There is no MCP call {call_id[:80]!r}.")
        return McpCallRecordResponse.from_record(found)

    return router


async def _may_see(
    services: ApiServices, principal: Principal, caller: str, run: str | None, session: str | None
) -> bool:
    view = principal.tenant
    if caller == principal.subject or getattr(view, "sees_all", True):
        return True
    for id_, get in ((run, services.runs.get), (session, services.sessions.get)):
        if id_ is not None:
            try:
                await get(view, id_)
            except NotFound:
                continue
            return True
    return False
