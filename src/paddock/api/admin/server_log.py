"""Route for the newest lines of the server's log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from pydantic import AwareDatetime
from starlette.responses import Response

from paddock.api.http.authorization import Admin
from paddock.api.http.body_models import ResponseBody
from paddock.api.http.error_responses import openapi_errors
from paddock.api.http.event_log_responses import AcceptHeader, AfterEvent, LastEventId
from paddock.api.http.server_sent_events import (
    HEARTBEAT_COMMENT,
    STREAM_HEADERS,
    STREAM_OPENED,
    parse_resume_position,
    with_heartbeats,
)
from paddock.api.services import ApiServices
from paddock.telemetry.log_buffer import CAPACITY, LogLine

LogLevel = Literal["debug", "info", "warning", "error", "critical"]


class LogLineResponse(ResponseBody):
    number: int
    """1, 2, 3 … since the server started."""
    at: AwareDatetime
    level: LogLevel
    event: str
    fields: dict[str, Any]
    """Further fields; `exception` if there was one."""

    @classmethod
    def from_line(cls, line: LogLine) -> LogLineResponse:
        return cls.model_validate(
            {"number": line.number, "at": line.at, "level": line.level, "event": line.event, "fields": line.fields}
        )


class LogPageResponse(ResponseBody):
    items: list[LogLineResponse]
    """Oldest first."""
    next: int
    """The value of `after` for newer lines only."""


_LOG_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "model": LogPageResponse,
        "description": "JSON, or an endless stream for `Accept: text/event-stream`.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter(prefix="/v1/logs", tags=["General"])
    ring = services.log

    @router.get("", responses={**openapi_errors(), **_LOG_RESPONSES}, response_model=None)
    async def read_log(
        principal: Admin,
        level: Annotated[LogLevel, Query(description="Least severe level shown.")] = "debug",
        q: Annotated[str, Query(max_length=200, description="Words that a line contains.")] = "",
        after: AfterEvent = 0,
        limit: Annotated[int, Query(ge=1, le=CAPACITY, description="How many of the newest lines.")] = 200,
        last_event_id: LastEventId = None,
        accept: AcceptHeader = "",
    ) -> Response:
        """Return the newest lines of the server's log since its start, as filtered by `log.level`."""
        position = parse_resume_position(last_event_id, after, "number of a line")
        if "text/event-stream" in accept:
            frames = _stream_lines(services, position, limit, level, q)
            return StreamingResponse(frames, 200, STREAM_HEADERS, "text/event-stream")
        last = ring.last_number
        page = LogPageResponse(
            items=[LogLineResponse.from_line(line) for line in ring.read(position, limit, level, q)], next=last
        )
        return Response(page.model_dump_json(by_alias=True), media_type="application/json")

    return router


async def _stream_lines(services: ApiServices, after: int, limit: int, level: str, words: str) -> AsyncIterator[bytes]:
    """Stream some of the newest lines, then new ones."""
    yield STREAM_OPENED
    newest = services.log.read(after, limit, level, words)
    position = newest[0].number - 1 if newest else services.log.last_number
    lines = services.log.follow(max(after, position), level, words)
    async with aclosing(with_heartbeats(lines)) as following:  # type: ignore[type-var]
        async for line in following:
            if line is None:
                yield HEARTBEAT_COMMENT
            else:
                document = LogLineResponse.from_line(line).model_dump_json(by_alias=True)
                yield f"id: {line.number}\nevent: {line.level}\ndata: {document}\n\n".encode()
