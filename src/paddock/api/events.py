"""What happens, as it happens: server-sent events that can be resumed, or pages of JSON."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse
from pydantic import AwareDatetime
from starlette.responses import Response

from paddock.api.access import Reader
from paddock.api.errors import documented
from paddock.api.services import Services
from paddock.api.wire import Said
from paddock.errors import InvalidInput
from paddock.events.log import EventLog
from paddock.model.events import Event, EventType

HEARTBEAT = 15.0
LARGEST = 2**63 - 1


class EventSaid(Said):
    sequence: int
    """Its place among all events; grows, may have gaps."""
    stream: str
    number: int
    """Its place in its stream: 1, 2, 3 …"""
    type: EventType
    at: AwareDatetime
    data: dict[str, Any]

    @classmethod
    def of(cls, event: Event) -> EventSaid:
        return cls(**{**event.model_dump(exclude={"tenant"}), "data": dict(event.data)})


class EventPage(Said):
    items: list[EventSaid]
    next: int
    """What to give as `after` for the next page."""


After = Annotated[int, Query(ge=0, le=LARGEST, description="Only events after this one.")]
LastEventId = Annotated[str | None, Header(alias="Last-Event-ID", description="As `after`, and counts before it.")]
Accept = Annotated[str, Header(include_in_schema=False)]
Limit = Annotated[int, Query(ge=1, le=1000, description="Largest number of events in a page of JSON.")]
_DESCRIBED: dict[int | str, dict[str, Any]] = {
    200: {
        "model": EventPage,
        "description": "A stream that goes on, or a page of JSON for `Accept: application/json`.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


def routes(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["Events"])
    events, fleet = services.events, services.fleet

    @router.get("/events", responses={**documented(), **_DESCRIBED}, response_model=None)
    async def follow_events(
        principal: Reader,
        after: After = 0,
        limit: Limit = 100,
        last_event_id: LastEventId = None,
        accept: Accept = "",
    ) -> Response | EventPage:
        """Everything that happened and happens in the tenant. `id:` is the event's sequence number."""
        return await _answer(events, None, principal.tenant, _place(last_event_id, after), limit, accept)

    @router.get("/sandboxes/{sandbox_id}/events", responses={**documented(404), **_DESCRIBED}, response_model=None)
    async def follow_sandbox_events(
        sandbox_id: str,
        principal: Reader,
        after: After = 0,
        limit: Limit = 100,
        last_event_id: LastEventId = None,
        accept: Accept = "",
    ) -> Response | EventPage:
        """What happened and happens to one sandbox, until it has ended. `id:` is the event's number in its stream."""
        await fleet.get(principal.tenant, sandbox_id)
        stream = f"sandbox/{sandbox_id}"
        return await _answer(events, stream, principal.tenant, _place(last_event_id, after), limit, accept)

    return router


async def _answer(
    events: EventLog, stream: str | None, tenant: str, after: int, limit: int, accept: str
) -> Response | EventPage:
    if "application/json" in accept and "text/event-stream" not in accept:
        found: Sequence[Event] = await events.read(stream, after, limit, tenant=tenant)
        last = _id(found[-1], stream) if found else after
        return EventPage(items=[EventSaid.of(event) for event in found], next=last)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_stream(events, stream, tenant, after), 200, headers, "text/event-stream")


async def _stream(events: EventLog, stream: str | None, tenant: str, after: int) -> AsyncIterator[bytes]:
    yield b": follows\n\n"
    async with aclosing(events.follow(stream, after, tenant=tenant)) as following:  # type: ignore[type-var]
        upcoming: asyncio.Task[Event] | None = None
        try:
            while True:
                upcoming = upcoming or asyncio.ensure_future(anext(following))
                done, _ = await asyncio.wait((upcoming,), timeout=HEARTBEAT)
                if not done:
                    yield b": still here\n\n"
                    continue
                try:
                    event = upcoming.result()
                except StopAsyncIteration:
                    return
                upcoming = None
                yield _frame(event, stream)
                if stream is not None and event.type.last:
                    return
        finally:
            if upcoming is not None:
                upcoming.cancel()
                await asyncio.gather(upcoming, return_exceptions=True)


def _frame(event: Event, stream: str | None) -> bytes:
    document = EventSaid.of(event).model_dump_json(by_alias=True)
    return f"id: {_id(event, stream)}\nevent: {event.type}\ndata: {document}\n\n".encode()


def _id(event: Event, stream: str | None) -> int:
    return event.sequence if stream is None else event.number


def _place(last_event_id: str | None, after: int) -> int:
    if not last_event_id:
        return after
    if not (last_event_id.isascii() and last_event_id.isdigit() and int(last_event_id) <= LARGEST):
        raise InvalidInput("Last-Event-ID: give the id of an event, which is a whole number")
    return int(last_event_id)
