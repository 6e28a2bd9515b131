"""Chat sessions: begun, listed, changed, forked, searched, spoken in and stopped."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse

from paddock.agents.requests import NewSession, SessionPatch, Written
from paddock.api.access import SessionReader, SessionWriter
from paddock.api.errors import documented
from paddock.api.events import DESCRIBED, SESSIONS, WHAT, Accept, After, LastEventId, Limit, answer
from paddock.api.following import STREAM_HEADERS, place
from paddock.api.json_bodies import LongJson
from paddock.api.services import Services
from paddock.api.session_messages import (
    Before,
    DecidedList,
    ForkBody,
    HitList,
    Key,
    MessageBody,
    MessageList,
    Page,
    PagedSaid,
    PageSize,
    ResumeBody,
    SessionBody,
    SessionList,
    SettingsBody,
    chosen,
    made,
    said,
    sliced,
)
from paddock.api.session_stream import Stream
from paddock.errors import InvalidInput
from paddock.model.sessions import Message, Session
from paddock.store.sessions import cursor

_SENT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "For `Accept: text/event-stream`: the message's event, and what follows until the turn ends.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    },
    202: {"model": Message, "description": "The message, which is kept."},
}
Words = Annotated[str, Query(min_length=1, max_length=1000)]


def _session(status: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": Session, "description": "The session."}}


def _checked(before: str | None) -> str | None:
    """Raises `InvalidInput` for a moment that no calendar has everywhere."""
    try:
        datetime.fromisoformat((before or "").partition("_")[0]).astimezone(UTC)
    except OverflowError:
        raise InvalidInput("before: this is no place to go on from; use what an earlier page said") from None
    except ValueError:
        pass  # An id, or nonsense, of which more is said when it is looked for.
    return before


def _place(session: Session) -> str:
    """Where a listing goes on, in letters that an address may have as they are."""
    return cursor(session).replace("+00:00", "Z")


def routes(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1/sessions", tags=["Sessions"], route_class=LongJson)
    sessions = services.sessions

    @router.post("", status_code=201, responses={**documented(429), **_session(201)}, response_model=None)
    async def create_session(
        principal: SessionWriter, body: SessionBody | None = None, idempotency_key: Key = None
    ) -> Response:
        """Begin a chat with an agent. Its sandboxes are made when it first uses them.

        Asking again with the same `Idempotency-Key` returns the same session.
        """
        wanted = made(NewSession, chosen(body) if body else {})
        by = principal.name
        return said(await sessions.create(principal.tenant, wanted, by, request_key=idempotency_key), 201)

    @router.get("", responses={**documented(404), 200: {"model": SessionList}}, response_model=None)
    async def list_sessions(
        principal: SessionReader,
        q: Annotated[str | None, Query(min_length=1, max_length=200, description="Words of the title.")] = None,
        before: Before = None,
        page: Page = 1,
        page_size: PageSize = 50,
    ) -> Response:
        """List sessions, the one that changed last first."""

        async def read(limit: int, place: str | None) -> Sequence[Session]:
            return await sessions.list(principal.tenant, limit=limit, before=place, query=q)

        items, pagination = await sliced(read, _place, page, page_size, _checked(before))
        more = _place(items[-1]) if pagination.has_next_page else None
        return said(SessionList(items=items, pagination=pagination, next=more))

    @router.get("/search", responses={**documented(404), 200: {"model": HitList}}, response_model=None)
    async def search_sessions(
        principal: SessionReader,
        q: Words,
        session: Annotated[str | None, Query(max_length=100, description="Only in this one.")] = None,
        page_size: PageSize = 20,
    ) -> Response:
        """Search what was said in sessions, and what tools answered."""
        found = await sessions.search(principal.tenant, q, session=session, limit=page_size)
        return said(HitList(items=list(found)))

    @router.get("/{session_id}", responses={**documented(404), **_session(200)}, response_model=None)
    async def get_session(session_id: str, principal: SessionReader) -> Response:
        """All that is known of one session but what was said in it."""
        return said(await sessions.get(principal.tenant, session_id))

    @router.patch("/{session_id}", responses={**documented(404, 409), **_session(200)}, response_model=None)
    async def change_session(session_id: str, body: SettingsBody, principal: SessionWriter) -> Response:
        """Change what a session is to be from its next step on. What is left out stays."""
        patch = made(SessionPatch, chosen(body))
        by = principal.name
        return said(await sessions.change(principal.tenant, session_id, patch, by))

    @router.delete("/{session_id}", status_code=204, responses=documented(404))
    async def delete_session(session_id: str, principal: SessionWriter) -> None:
        """Stop a session and remove it, with its messages, files and sandboxes."""
        await sessions.delete(principal.tenant, session_id)

    @router.post(
        "/{session_id}/fork", status_code=201, responses={**documented(404, 429), **_session(201)}, response_model=None
    )
    async def fork_session(session_id: str, principal: SessionWriter, body: ForkBody | None = None) -> Response:
        """Begin a new session with what was said in another, up to a message."""
        asked = body or ForkBody()
        by = principal.name
        forked = await sessions.fork(principal.tenant, session_id, message=asked.message, title=asked.title, by=by)
        return said(forked, 201)

    _talk_routes(router, services)
    return router


def _talk_routes(router: APIRouter, services: Services) -> None:
    sessions = services.sessions

    @router.get(
        "/{session_id}/messages", responses={**documented(404), 200: {"model": MessageList}}, response_model=None
    )
    async def list_messages(
        session_id: str,
        principal: SessionReader,
        after: After = 0,
        page: Page = 1,
        page_size: PageSize = 100,
    ) -> Response:
        """What was said in a session, in order. Messages are numbered from 1; `after` skips those up to a number."""
        begin = after + (page - 1) * page_size
        found = await sessions.messages(principal.tenant, session_id, after=begin, limit=page_size + 1)
        shown = found[:page_size]
        pagination = PagedSaid(page=page, page_size=page_size, has_next_page=len(found) > page_size)
        return said(MessageList(items=shown, pagination=pagination, next=shown[-1].number if shown else begin))

    @router.post("/{session_id}/messages", responses={**documented(404, 409, 429), **_SENT}, response_model=None)
    async def send_message(
        session_id: str, body: MessageBody, principal: SessionWriter, accept: Accept = "", idempotency_key: Key = None
    ) -> Response:
        """Say something to the agent. If it is at work, it reads this before its next step.

        Asking again with the same `Idempotency-Key` does not say it twice.
        """
        tenant = principal.tenant
        stream = Stream(services.events, tenant, session_id)
        written = made(Written, body.document())
        sent = await sessions.send(tenant, session_id, written, principal.name, request_key=idempotency_key)
        if "text/event-stream" not in accept:
            return said(sent.message, 202)
        frames = stream.turn(await stream.arrival(sent), sent.message.turn)
        return StreamingResponse(frames, 200, STREAM_HEADERS, "text/event-stream")

    @router.get("/{session_id}/events", responses={**documented(404), **DESCRIBED}, response_model=None)
    async def follow_session_events(
        session_id: str,
        principal: SessionReader,
        after: After = 0,
        limit: Limit = 100,
        last_event_id: LastEventId = None,
        accept: Accept = "",
    ) -> Response:
        """What happened and happens in one session, until it is deleted. `id:` is the event's number in its stream."""
        await sessions.get(principal.tenant, session_id)
        begins = place(last_event_id, after, WHAT)
        return await answer(services.events, f"{SESSIONS}{session_id}", principal.tenant, begins, limit, accept)

    @router.post(
        "/{session_id}/resume", responses={**documented(404, 409), 200: {"model": DecidedList}}, response_model=None
    )
    async def resume_session(session_id: str, body: ResumeBody, principal: SessionWriter) -> Response:
        """Decide about what waits for a person: all of these decisions, or, if one cannot be, none."""
        by = principal.name
        return said(DecidedList(items=await sessions.decide(principal.tenant, session_id, body.all(), by)))

    @router.post("/{session_id}/cancel", responses={**documented(404), **_session(200)}, response_model=None)
    async def cancel_turn(session_id: str, principal: SessionWriter) -> Response:
        """Stop what the agent is doing. What was said and done stays."""
        return said(await sessions.cancel(principal.tenant, session_id, principal.name))

    @router.post(
        "/{session_id}/continue",
        status_code=202,
        responses={**documented(404, 409), **_session(202)},
        response_model=None,
    )
    async def continue_session(session_id: str, principal: SessionWriter) -> Response:
        """Let the agent go on where it was stopped or failed."""
        return said(await sessions.go_on(principal.tenant, session_id, principal.name), 202)
