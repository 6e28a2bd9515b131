"""Data from one sandbox to another."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import Field

from paddock.api.access import Writer
from paddock.api.errors import documented
from paddock.api.following import STREAM_HEADERS
from paddock.api.services import Services
from paddock.api.wire import Asked, Said
from paddock.errors import InvalidInput, PaddockError
from paddock.fleet.moving import Moved, Mover, Place

LINES = "application/x-ndjson"
TELL_EVERY = 0.25

SandboxPath = Annotated[str, Field(min_length=1, max_length=4096, examples=["/workspace/report.pdf"])]


class ScreenSource(Asked):
    screenshot: Literal[True]
    """Takes a picture of the screen instead of a file."""
    format: Literal["png", "jpeg"] = "png"


class Destination(Asked):
    sandbox: str = Field(max_length=100)
    path: SandboxPath


class MoveBody(Asked):
    """`from` is a path, or `{"screenshot": true}` for a picture of the screen."""

    source: SandboxPath | ScreenSource = Field(alias="from")
    to: Destination
    max_size: int | None = Field(default=None, ge=0)
    """Bytes that may pass; no more than `sandboxes.max_move`."""
    keep: bool = True
    """Whether the source stays; without it a file or directory is gone from where it was."""


class MovedSaid(Said):
    source: str
    source_path: str | None = None
    destination: str
    destination_path: str
    type: Literal["file", "directory", "screenshot"]
    size: int
    """Bytes that passed; a directory passes as a tar stream."""
    sha256: str
    """Digest of these bytes."""
    kept: bool
    """Whether the source is still there."""


def routes(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1/sandboxes", tags=["Sandboxes"])
    fleet = services.fleet
    mover = Mover(fleet)

    @router.post(
        "/{sandbox_id}/move",
        responses={**documented(404, 409, 413, 502, 504), 200: {"content": {LINES: {"schema": {"type": "string"}}}}},
        response_model=MovedSaid,
    )
    async def move_data(sandbox_id: str, body: MoveBody, principal: Writer, request: Request) -> Response | MovedSaid:
        """Copy or move a file, a directory or a picture of the screen to another sandbox of the same tenant.

        It arrives whole or not at all. With `Accept: application/x-ndjson` the answer is lines that tell of the
        progress, `{"moved": BYTES, "total": BYTES}`, and a last one with `done` or `error`.
        """
        goal = Place(sandbox=body.to.sandbox, path=body.to.path)

        async def work(report: Callable[[int, int | None], None]) -> Moved:
            if isinstance(body.source, ScreenSource):
                if not body.keep:
                    raise InvalidInput("keep: a screen stays where it is; leave it out")
                return await mover.screenshot(
                    principal.tenant, sandbox_id, goal, form=body.source.format, max_size=body.max_size
                )
            source = Place(sandbox=sandbox_id, path=body.source)
            return await mover.move(
                principal.tenant, source, goal, max_size=body.max_size, keep=body.keep, report=report
            )

        if LINES in request.headers.get("accept", ""):
            return StreamingResponse(_lines(work), 200, STREAM_HEADERS, LINES)
        return _said(await work(lambda count, total: None))

    return router


async def _lines(work: Callable[[Callable[[int, int | None], None]], Awaitable[Moved]]) -> AsyncIterator[bytes]:
    """Progress as it is made. When whoever listens leaves, the move is given up."""
    latest: tuple[int, int | None] = (0, None)

    def report(count: int, total: int | None) -> None:
        nonlocal latest
        latest = count, total

    task = asyncio.ensure_future(work(report))
    try:
        while not (await asyncio.wait([task], timeout=TELL_EVERY))[0]:
            yield _line({"moved": latest[0], "total": latest[1]})
        try:
            yield _line({"done": _said(task.result()).model_dump(by_alias=True)})
        except PaddockError as error:
            yield _line({"error": {"code": error.code, "message": error.message}})
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _line(document: object) -> bytes:
    return json.dumps(document).encode() + b"\n"


def _said(moved: Moved) -> MovedSaid:
    return MovedSaid(**moved.model_dump())
