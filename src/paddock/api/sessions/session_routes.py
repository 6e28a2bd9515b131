"""Routes for chat sessions: create, list, change, fork, search, send messages and cancel turns."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse

from paddock.agents.sessions.session_requests import CreateSessionRequest, MessageRequest, UpdateSessionRequest
from paddock.api.http.authorization import SessionReader, SessionWriter
from paddock.api.http.error_responses import openapi_errors
from paddock.api.http.event_log_responses import (
    EVENT_ID_NAME,
    EVENT_RESPONSES,
    SESSION_STREAM_PREFIX,
    AcceptHeader,
    AfterEvent,
    EventPageLimit,
    LastEventId,
    respond_with_events,
)
from paddock.api.http.long_json_route import LongJsonRoute
from paddock.api.http.numbered_pages import PageSize
from paddock.api.http.server_sent_events import STREAM_HEADERS, parse_resume_position
from paddock.api.services import ApiServices
from paddock.api.sessions.session_bodies import (
    BeforeCursor,
    DecidedApprovalsResponse,
    ForkSessionRequest,
    IdempotencyKey,
    MessageListResponse,
    ResumeSessionRequest,
    SendMessageRequest,
    SessionListResponse,
    SessionPageNumber,
    SessionPagination,
    SessionSearchResponse,
    SessionSettingsRequest,
    StartSessionRequest,
    dump_set_fields,
    json_response,
    read_listing_page,
    validate_document,
)
from paddock.api.sessions.session_event_stream import SessionEventStream
from paddock.errors import InvalidInput
from paddock.model.sessions import Session, SessionMessage
from paddock.store.chat_sessions.session_store import session_cursor

_MESSAGE_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "For `Accept: text/event-stream`: the message's event, and what follows until the turn ends.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    },
    202: {"model": SessionMessage, "description": "The stored message."},
}
SearchQuery = Annotated[str, Query(min_length=1, max_length=1000)]


def _session_response(status: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": Session, "description": "The session."}}


def _validate_cursor(before: str | None) -> str | None:
    """Raise `InvalidInput` for a cursor with a time outside the calendar."""
    try:
        datetime.fromisoformat((before or "").partition("_")[0]).astimezone(UTC)
    except OverflowError:
        raise InvalidInput("before: invalid cursor; use `next` of an earlier page") from None
    except ValueError:
        pass  # An id or an invalid cursor; the lookup reports errors.
    return before


def _cursor_of(session: Session) -> str:
    """Return a session's cursor in characters that need no escaping in a URL."""
    return session_cursor(session).replace("+00:00", "Z")


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter(
        prefix="/v1/sessions", tags=["Sessions"], route_class=LongJsonRoute.with_workers(services.gateway.workers)
    )
    sessions = services.sessions

    @router.post("", status_code=201, responses={**openapi_errors(429), **_session_response(201)}, response_model=None)
    async def create_session(
        principal: SessionWriter, body: StartSessionRequest | None = None, idempotency_key: IdempotencyKey = None
    ) -> Response:
        """Create a chat session with an agent. Its sandboxes are created on first use.

        Another request with the same `Idempotency-Key` returns the same session.
        """
        new_session = validate_document(CreateSessionRequest, dump_set_fields(body) if body else {})
        by = principal.name
        return json_response(await sessions.create(principal.tenant, new_session, by, request_key=idempotency_key), 201)

    @router.get("", responses={**openapi_errors(404), 200: {"model": SessionListResponse}}, response_model=None)
    async def list_sessions(
        principal: SessionReader,
        q: Annotated[str | None, Query(min_length=1, max_length=200, description="Words in the title.")] = None,
        before: BeforeCursor = None,
        page: SessionPageNumber = 1,
        page_size: PageSize = 50,
    ) -> Response:
        """List sessions, most recently changed first."""

        async def read(limit: int, cursor: str | None) -> Sequence[Session]:
            return await sessions.list(principal.tenant, limit=limit, before=cursor, query=q)

        items, pagination = await read_listing_page(read, _cursor_of, page, page_size, _validate_cursor(before))
        next_cursor = _cursor_of(items[-1]) if pagination.has_next_page else None
        return json_response(SessionListResponse(items=items, pagination=pagination, next=next_cursor))

    @router.get(
        "/search", responses={**openapi_errors(404), 200: {"model": SessionSearchResponse}}, response_model=None
    )
    async def search_sessions(
        principal: SessionReader,
        q: SearchQuery,
        session: Annotated[str | None, Query(max_length=100, description="Only in this session.")] = None,
        page_size: PageSize = 20,
    ) -> Response:
        """Search messages and tool results."""
        hits = await sessions.search_messages(principal.tenant, q, session=session, limit=page_size)
        return json_response(SessionSearchResponse(items=list(hits)))

    @router.get("/{session_id}", responses={**openapi_errors(404), **_session_response(200)}, response_model=None)
    async def get_session(session_id: str, principal: SessionReader) -> Response:
        """Return one session, without its messages."""
        return json_response(await sessions.get(principal.tenant, session_id))

    @router.patch(
        "/{session_id}", responses={**openapi_errors(404, 409), **_session_response(200)}, response_model=None
    )
    async def change_session(session_id: str, body: SessionSettingsRequest, principal: SessionWriter) -> Response:
        """Change settings of a session from its next step on. Omitted settings stay."""
        patch = validate_document(UpdateSessionRequest, dump_set_fields(body))
        by = principal.name
        return json_response(await sessions.update(principal.tenant, session_id, patch, by))

    @router.delete("/{session_id}", status_code=204, responses=openapi_errors(404))
    async def delete_session(session_id: str, principal: SessionWriter) -> None:
        """Delete a session with its messages, files and sandboxes."""
        await sessions.delete(principal.tenant, session_id)

    @router.post(
        "/{session_id}/fork",
        status_code=201,
        responses={**openapi_errors(404, 429), **_session_response(201)},
        response_model=None,
    )
    async def fork_session(
        session_id: str, principal: SessionWriter, body: ForkSessionRequest | None = None
    ) -> Response:
        """Create a session with the messages of another, up to a message."""
        request_body = body or ForkSessionRequest()
        by = principal.name
        forked = await sessions.fork(
            principal.tenant, session_id, message=request_body.message, title=request_body.title, by=by
        )
        return json_response(forked, 201)

    _add_message_routes(router, services)
    return router


def _add_message_routes(router: APIRouter, services: ApiServices) -> None:
    sessions = services.sessions

    @router.get(
        "/{session_id}/messages",
        responses={**openapi_errors(404), 200: {"model": MessageListResponse}},
        response_model=None,
    )
    async def list_messages(
        session_id: str,
        principal: SessionReader,
        after: AfterEvent = 0,
        page: SessionPageNumber = 1,
        page_size: PageSize = 100,
    ) -> Response:
        """List the messages of a session in order. They are numbered from 1; `after` skips up to a number."""
        start = after + (page - 1) * page_size
        messages = await sessions.list_messages(principal.tenant, session_id, after=start, limit=page_size + 1)
        page_messages = messages[:page_size]
        pagination = SessionPagination(page=page, page_size=page_size, has_next_page=len(messages) > page_size)
        return json_response(
            MessageListResponse(
                items=page_messages, pagination=pagination, next=page_messages[-1].number if page_messages else start
            )
        )

    @router.post(
        "/{session_id}/messages",
        responses={**openapi_errors(404, 409, 429), **_MESSAGE_RESPONSES},
        response_model=None,
    )
    async def send_message(
        session_id: str,
        body: SendMessageRequest,
        principal: SessionWriter,
        accept: AcceptHeader = "",
        idempotency_key: IdempotencyKey = None,
    ) -> Response:
        """Send a message to the agent. During a turn, the agent reads it before its next step.

        Another request with the same `Idempotency-Key` does not send it twice.
        """
        tenant = principal.tenant
        stream = SessionEventStream(services.events, tenant, session_id)
        message_request = validate_document(MessageRequest, body.to_document())
        sent = await sessions.send_message(
            tenant, session_id, message_request, principal.name, request_key=idempotency_key
        )
        if "text/event-stream" not in accept:
            return json_response(sent.message, 202)
        frames = stream.stream_turn(await stream.find_arrival(sent), sent.message.turn)
        return StreamingResponse(frames, 200, STREAM_HEADERS, "text/event-stream")

    @router.get("/{session_id}/events", responses={**openapi_errors(404), **EVENT_RESPONSES}, response_model=None)
    async def follow_session_events(
        session_id: str,
        principal: SessionReader,
        after: AfterEvent = 0,
        limit: EventPageLimit = 100,
        last_event_id: LastEventId = None,
        accept: AcceptHeader = "",
    ) -> Response:
        """Follow the events of one session until it is deleted. `id:` is the event's number in its stream."""
        await sessions.get(principal.tenant, session_id)
        position = parse_resume_position(last_event_id, after, EVENT_ID_NAME)
        return await respond_with_events(
            services.events, f"{SESSION_STREAM_PREFIX}{session_id}", principal.tenant, position, limit, accept
        )

    @router.post(
        "/{session_id}/resume",
        responses={**openapi_errors(404, 409), 200: {"model": DecidedApprovalsResponse}},
        response_model=None,
    )
    async def resume_session(session_id: str, body: ResumeSessionRequest, principal: SessionWriter) -> Response:
        """Decide pending approvals: all of these decisions are applied, or none if one is invalid."""
        by = principal.name
        return json_response(
            DecidedApprovalsResponse(
                items=await sessions.decide_approvals(principal.tenant, session_id, body.to_decisions(), by)
            )
        )

    @router.post(
        "/{session_id}/cancel", responses={**openapi_errors(404), **_session_response(200)}, response_model=None
    )
    async def cancel_turn(session_id: str, principal: SessionWriter) -> Response:
        """Cancel the agent's turn. Its messages and results are kept."""
        return json_response(await sessions.cancel_turn(principal.tenant, session_id, principal.name))

    @router.post(
        "/{session_id}/continue",
        status_code=202,
        responses={**openapi_errors(404, 409), **_session_response(202)},
        response_model=None,
    )
    async def continue_session(session_id: str, principal: SessionWriter) -> Response:
        """Continue a turn that was cancelled or has failed."""
        return json_response(await sessions.continue_turn(principal.tenant, session_id, principal.name), 202)
