"""Answer with events of the event log, as a resumable stream or as pages of JSON."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Annotated, Any

from fastapi import Header, Query
from fastapi.responses import StreamingResponse
from pydantic import AwareDatetime
from pydantic_core import PydanticSerializationError
from starlette.responses import Response

from paddock.api.http.body_models import ResponseBody
from paddock.api.http.server_sent_events import (
    HEARTBEAT_COMMENT,
    MAX_RESUME_POSITION,
    STREAM_HEADERS,
    STREAM_OPENED,
    with_heartbeats,
)
from paddock.events.event_log import EventLog
from paddock.model.events import EventRecord, EventType


class EventResponse(ResponseBody):
    sequence: int
    """Position among all events; increasing, may have gaps."""
    stream: str
    number: int
    """Position in its stream: 1, 2, 3 …"""
    type: EventType
    at: AwareDatetime
    data: dict[str, Any]


class EventPageResponse(ResponseBody):
    items: list[EventResponse]
    next: int
    """The value of `after` for the next page."""


AfterEvent = Annotated[int, Query(ge=0, le=MAX_RESUME_POSITION, description="Only events after this one.")]
LastEventId = Annotated[str | None, Header(alias="Last-Event-ID", description="As `after`, and counts before it.")]
AcceptHeader = Annotated[str, Header(include_in_schema=False)]
EventPageLimit = Annotated[int, Query(ge=1, le=1000, description="Largest number of events in a page of JSON.")]
RUN_STREAM_PREFIX, SESSION_STREAM_PREFIX = "run/", "session/"
EVENT_ID_NAME = "id of an event"
EVENT_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "model": EventPageResponse,
        "description": "A stream, or a page of JSON for `Accept: application/json`.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


async def respond_with_events(
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
    """Respond with the events of one stream, or of all streams without a `hidden` prefix.

    If the stream has `ended`, its past events are sent and the response ends.
    """
    if "application/json" in accept and "text/event-stream" not in accept:
        return await _read_page(events, stream, tenant, after, limit, hidden)
    frames = (
        _past_events(events, stream, tenant, after) if ended else _follow_stream(events, stream, tenant, after, hidden)
    )
    return StreamingResponse(frames, 200, STREAM_HEADERS, "text/event-stream")


async def _read_page(
    events: EventLog, stream: str | None, tenant: str, after: int, limit: int, hidden: tuple[str, ...]
) -> Response:
    """Read one page. It is shorter than `limit` only where the events end."""
    shown: list[EventRecord] = []
    last = after
    while len(shown) < limit:
        found: Sequence[EventRecord] = await events.read(stream, last, limit, tenant=tenant)
        for event in found:
            if len(shown) < limit:
                last = _event_id(event, stream)
                shown += [] if event.stream.startswith(hidden) else [event]
        if len(found) < limit:
            break
    page = f'{{"items":[{",".join(map(event_to_json, shown))}],"next":{last}}}'
    return Response(page, media_type="application/json")


async def _follow_stream(
    events: EventLog, stream: str | None, tenant: str, after: int, hidden: tuple[str, ...]
) -> AsyncIterator[bytes]:
    yield STREAM_OPENED
    async with aclosing(with_heartbeats(events.follow(stream, after, tenant=tenant))) as following:  # type: ignore[type-var]
        async for event in following:
            if event is None:
                yield HEARTBEAT_COMMENT
                continue
            if event.stream.startswith(hidden):
                continue
            yield event_to_sse(event, stream)
            if stream is not None and event.type.ends_stream:
                return


async def _past_events(events: EventLog, stream: str | None, tenant: str, after: int) -> AsyncIterator[bytes]:
    yield STREAM_OPENED
    while found := await events.read(stream, after, 100, tenant=tenant):
        for event in found:
            yield event_to_sse(event, stream)
        after = _event_id(found[-1], stream)


_HIDDEN_FIELDS = {"tenant", "audience"}


def event_to_json(event: EventRecord) -> str:
    """Serialise an event as an `EventResponse`, always to the same bytes."""
    try:
        return event.model_dump_json(exclude=_HIDDEN_FIELDS)
    except PydanticSerializationError:
        # Models may write lone surrogates, which UTF-8 cannot encode but a JSON escape can.
        return json.dumps(
            event.model_dump(mode="python", exclude=_HIDDEN_FIELDS),
            default=encode_non_json_value,
            separators=(",", ":"),
        )


def event_to_sse(event: EventRecord, stream: str | None) -> bytes:
    """Format an event as a server-sent event."""
    return f"id: {_event_id(event, stream)}\nevent: {event.type}\ndata: {event_to_json(event)}\n\n".encode()


def encode_non_json_value(value: object) -> object:
    """Convert a value that JSON lacks: datetimes as in other responses, anything else as text."""
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else str(value)


def _event_id(event: EventRecord, stream: str | None) -> int:
    return event.sequence if stream is None else event.number
