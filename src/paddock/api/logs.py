"""The newest lines of the server's log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from pydantic import AwareDatetime
from starlette.responses import Response

from paddock.api.access import Admin
from paddock.api.errors import documented
from paddock.api.events import Accept, After, LastEventId
from paddock.api.following import FOLLOWS, STILL_HERE, STREAM_HEADERS, alive, place
from paddock.api.services import Services
from paddock.api.wire import Said
from paddock.telemetry.logs import KEPT, Line

Level = Literal["debug", "info", "warning", "error", "critical"]


class LogLine(Said):
    number: int
    """1, 2, 3 … since the server started."""
    at: AwareDatetime
    level: Level
    event: str
    fields: dict[str, Any]
    """What else was said; `exception` is where one happened."""

    @classmethod
    def of(cls, line: Line) -> LogLine:
        return cls.model_validate(
            {"number": line.number, "at": line.at, "level": line.level, "event": line.event, "fields": line.fields}
        )


class LogPage(Said):
    items: list[LogLine]
    """Oldest first."""
    next: int
    """What to give as `after` to hear of newer lines only."""


_DESCRIBED: dict[int | str, dict[str, Any]] = {
    200: {
        "model": LogPage,
        "description": "JSON, or a stream that goes on for `Accept: text/event-stream`.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


def routes(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1/logs", tags=["General"])
    ring = services.log

    @router.get("", responses={**documented(), **_DESCRIBED}, response_model=None)
    async def read_log(
        principal: Admin,
        level: Annotated[Level, Query(description="Least serious lines shown.")] = "debug",
        q: Annotated[str, Query(max_length=200, description="Words that a line has in it.")] = "",
        after: After = 0,
        limit: Annotated[int, Query(ge=1, le=KEPT, description="How many of the newest lines.")] = 200,
        last_event_id: LastEventId = None,
        accept: Accept = "",
    ) -> Response:
        """The newest lines of the server's log. It shows what `log.level` lets through, since the server started."""
        begins = place(last_event_id, after, "number of a line")
        if "text/event-stream" in accept:
            frames = _frames(services, begins, limit, level, q)
            return StreamingResponse(frames, 200, STREAM_HEADERS, "text/event-stream")
        last = ring.last
        page = LogPage(items=[LogLine.of(line) for line in ring.read(begins, limit, level, q)], next=last)
        return Response(page.model_dump_json(by_alias=True), media_type="application/json")

    return router


async def _frames(services: Services, after: int, limit: int, level: str, words: str) -> AsyncIterator[bytes]:
    """Some of the newest lines, and then those that come."""
    yield FOLLOWS
    kept = services.log.read(after, limit, level, words)
    begins = kept[0].number - 1 if kept else services.log.last
    lines = services.log.follow(max(after, begins), level, words)
    async with aclosing(alive(lines)) as following:  # type: ignore[type-var]
        async for line in following:
            if line is None:
                yield STILL_HERE
            else:
                told = LogLine.of(line).model_dump_json(by_alias=True)
                yield f"id: {line.number}\nevent: {line.level}\ndata: {told}\n\n".encode()
