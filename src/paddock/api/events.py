"""What happens, as it happens: server-sent events that can be resumed, or pages of JSON."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse
from pydantic import AwareDatetime
from pydantic_core import PydanticSerializationError
from starlette.responses import Response

from paddock.api.access import Reader
from paddock.api.errors import documented
from paddock.api.following import FOLLOWS, LARGEST, STILL_HERE, STREAM_HEADERS, alive, place
from paddock.api.services import Services
from paddock.api.wire import Said
from paddock.errors import SandboxNotFound
from paddock.events.log import EventLog
from paddock.model.events import Event, EventType, sandbox_stream
from paddock.model.keys import Scope


class EventSaid(Said):
    sequence: int
    """Its place among all events; grows, may have gaps."""
    stream: str
    number: int
    """Its place in its stream: 1, 2, 3 …"""
    type: EventType
    at: AwareDatetime
    data: dict[str, Any]


class EventPage(Said):
    items: list[EventSaid]
    next: int
    """What to give as `after` for the next page."""


After = Annotated[int, Query(ge=0, le=LARGEST, description="Only events after this one.")]
LastEventId = Annotated[str | None, Header(alias="Last-Event-ID", description="As `after`, and counts before it.")]
Accept = Annotated[str, Header(include_in_schema=False)]
Limit = Annotated[int, Query(ge=1, le=1000, description="Largest number of events in a page of JSON.")]
RUNS, SESSIONS = "run/", "session/"
"""How the names of their streams begin."""
WHAT = "id of an event"
DESCRIBED: dict[int | str, dict[str, Any]] = {
    200: {
        "model": EventPage,
        "description": "A stream that goes on, or a page of JSON for `Accept: application/json`.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


def routes(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["Events"])
    events, fleet = services.events, services.fleet

    @router.get("/events", responses={**documented(), **DESCRIBED}, response_model=None)
    async def follow_events(
        principal: Reader,
        after: After = 0,
        limit: Limit = 100,
        last_event_id: LastEventId = None,
        accept: Accept = "",
    ) -> Response:
        """Everything that happened and happens in the tenant. `id:` is the event's sequence number.

        What happens to runs is told to keys with the scope `runs:read`, that in sessions to those with `sessions:read`.
        """
        kept = ((Scope.RUNS_READ, RUNS), (Scope.SESSIONS_READ, SESSIONS))
        hidden = tuple(streams for scope, streams in kept if not principal.allows(scope))
        begins = place(last_event_id, after, WHAT)
        return await answer(events, None, principal.tenant, begins, limit, accept, hidden=hidden)

    @router.get("/sandboxes/{sandbox_id}/events", responses={**documented(404), **DESCRIBED}, response_model=None)
    async def follow_sandbox_events(
        sandbox_id: str,
        principal: Reader,
        after: After = 0,
        limit: Limit = 100,
        last_event_id: LastEventId = None,
        accept: Accept = "",
    ) -> Response:
        """What happened and happens to one sandbox, until it has ended. `id:` is the event's number in its stream.

        What happened to one that is gone is told as long as events are kept.
        """
        stream = sandbox_stream(sandbox_id)
        begins = place(last_event_id, after, WHAT)
        try:
            await fleet.get(principal.tenant, sandbox_id)
        except SandboxNotFound:
            # What has ended is forgotten before its history is.
            if not await events.read(stream, 0, 1, tenant=principal.tenant):
                raise
            return await answer(events, stream, principal.tenant, begins, limit, accept, ended=True)
        return await answer(events, stream, principal.tenant, begins, limit, accept)

    return router


async def answer(
    events: EventLog,
    stream: str | None,
    tenant: str,
    after: int,
    limit: int,
    accept: str,
    *,
    hidden: tuple[str, ...] = (),
    ended: bool = False,
) -> Response:
    """The events of one stream, or of all but those whose names begin with what is hidden.

    Of a stream that has `ended`, nothing more is waited for.
    """
    if "application/json" in accept and "text/event-stream" not in accept:
        return await _page(events, stream, tenant, after, limit, hidden)
    frames = _past(events, stream, tenant, after) if ended else _stream(events, stream, tenant, after, hidden)
    return StreamingResponse(frames, 200, STREAM_HEADERS, "text/event-stream")


async def _page(
    events: EventLog, stream: str | None, tenant: str, after: int, limit: int, hidden: tuple[str, ...]
) -> Response:
    """A page is shorter than the limit only where the events end."""
    shown: list[Event] = []
    last = after
    while len(shown) < limit:
        found: Sequence[Event] = await events.read(stream, last, limit, tenant=tenant)
        for event in found:
            if len(shown) < limit:
                last = _id(event, stream)
                shown += [] if event.stream.startswith(hidden) else [event]
        if len(found) < limit:
            break
    page = f'{{"items":[{",".join(map(told, shown))}],"next":{last}}}'
    return Response(page, media_type="application/json")


async def _stream(
    events: EventLog, stream: str | None, tenant: str, after: int, hidden: tuple[str, ...]
) -> AsyncIterator[bytes]:
    yield FOLLOWS
    async with aclosing(alive(events.follow(stream, after, tenant=tenant))) as following:  # type: ignore[type-var]
        async for event in following:
            if event is None:
                yield STILL_HERE
                continue
            if event.stream.startswith(hidden):
                continue
            yield frame(event, stream)
            if stream is not None and event.type.last:
                return


async def _past(events: EventLog, stream: str | None, tenant: str, after: int) -> AsyncIterator[bytes]:
    yield FOLLOWS
    while found := await events.read(stream, after, 100, tenant=tenant):
        for event in found:
            yield frame(event, stream)
        after = _id(found[-1], stream)


_NOT_SHOWN = {"tenant", "audience"}


def told(event: Event) -> str:
    """An event as JSON: what an `EventSaid` says, to the same byte wherever it is told."""
    try:
        return event.model_dump_json(exclude=_NOT_SHOWN)
    except PydanticSerializationError:
        # Half a character, which some model wrote, is nothing in UTF-8; JSON can name it all the same.
        return json.dumps(event.model_dump(mode="python", exclude=_NOT_SHOWN), default=plain, separators=(",", ":"))


def frame(event: Event, stream: str | None) -> bytes:
    """An event as server-sent events have it."""
    return f"id: {_id(event, stream)}\nevent: {event.type}\ndata: {told(event)}\n\n".encode()


def plain(value: object) -> object:
    """A value that JSON does not know, as our answers write it."""
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else str(value)


def _id(event: Event, stream: str | None) -> int:
    return event.sequence if stream is None else event.number
