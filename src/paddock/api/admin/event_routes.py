"""Routes: events of the tenant and of one sandbox."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from paddock.api.http.authorization import SandboxReader
from paddock.api.http.error_responses import openapi_errors
from paddock.api.http.event_log_responses import (
    EVENT_ID_NAME,
    EVENT_RESPONSES,
    RUN_STREAM_PREFIX,
    SESSION_STREAM_PREFIX,
    AcceptHeader,
    AfterEvent,
    EventPageLimit,
    LastEventId,
    respond_with_events,
)
from paddock.api.http.server_sent_events import parse_resume_position
from paddock.api.services import ApiServices
from paddock.errors import SandboxNotFound
from paddock.model.events import sandbox_event_stream
from paddock.model.keys import Scope


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["Events"])
    events, fleet = services.events, services.fleet

    @router.get("/events", responses={**openapi_errors(), **EVENT_RESPONSES}, response_model=None)
    async def follow_events(
        principal: SandboxReader,
        after: AfterEvent = 0,
        limit: EventPageLimit = 100,
        last_event_id: LastEventId = None,
        accept: AcceptHeader = "",
    ) -> Response:
        """Follow all events of the tenant, past and future. `id:` is the event's sequence number.

        Events of runs require the scope `runs:read`, events of sessions `sessions:read`.
        """
        restricted = ((Scope.RUNS_READ, RUN_STREAM_PREFIX), (Scope.SESSIONS_READ, SESSION_STREAM_PREFIX))
        hidden = tuple(streams for scope, streams in restricted if not principal.allows(scope))
        position = parse_resume_position(last_event_id, after, EVENT_ID_NAME)
        return await respond_with_events(events, None, principal.tenant, position, limit, accept, hidden=hidden)

    @router.get(
        "/sandboxes/{sandbox_id}/events", responses={**openapi_errors(404), **EVENT_RESPONSES}, response_model=None
    )
    async def follow_sandbox_events(
        sandbox_id: str,
        principal: SandboxReader,
        after: AfterEvent = 0,
        limit: EventPageLimit = 100,
        last_event_id: LastEventId = None,
        accept: AcceptHeader = "",
    ) -> Response:
        """Follow the events of one sandbox until it has ended. `id:` is the event's number in its stream.

        Events of a deleted sandbox remain available as long as events are stored.
        """
        stream = sandbox_event_stream(sandbox_id)
        position = parse_resume_position(last_event_id, after, EVENT_ID_NAME)
        try:
            await fleet.get(principal.tenant, sandbox_id)
        except SandboxNotFound:
            # Sandboxes are deleted before their events are.
            if not await events.read(stream, 0, 1, tenant=principal.tenant):
                raise
            return await respond_with_events(events, stream, principal.tenant, position, limit, accept, ended=True)
        return await respond_with_events(events, stream, principal.tenant, position, limit, accept)

    return router
