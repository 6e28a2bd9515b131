"""Route that copies or moves files between sandboxes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import Field

from paddock.api.http.authorization import SandboxWriter
from paddock.api.http.body_models import RequestBody, ResponseBody
from paddock.api.http.error_responses import openapi_errors
from paddock.api.http.server_sent_events import STREAM_HEADERS
from paddock.api.services import ApiServices
from paddock.errors import InvalidInput, PaddockError
from paddock.fleet.file_mover import FileMover, FileMoveResult, SandboxFileLocation

NDJSON = "application/x-ndjson"
PROGRESS_INTERVAL = 0.25

TransferPath = Annotated[str, Field(min_length=1, max_length=4096, examples=["/workspace/report.pdf"])]


class ScreenSource(RequestBody):
    screenshot: Literal[True]
    """Transfers a screenshot instead of a file."""
    format: Literal["png", "jpeg"] = "png"


class MoveDestination(RequestBody):
    sandbox: str = Field(max_length=100)
    path: TransferPath


class MoveRequest(RequestBody):
    """`from` is a path, or `{"screenshot": true}` for a screenshot."""

    source: TransferPath | ScreenSource = Field(alias="from")
    to: MoveDestination
    max_size: int | None = Field(default=None, ge=0)
    """Largest number of bytes to transfer, at most `sandboxes.max_move`."""
    keep: bool = True
    """Whether to keep the source; otherwise the file or directory is deleted after the transfer."""


class MoveResponse(ResponseBody):
    source: str
    source_path: str | None = None
    destination: str
    destination_path: str
    type: Literal["file", "directory", "screenshot"]
    size: int
    """Bytes transferred; a directory is transferred as a tar stream."""
    sha256: str
    """Digest of the transferred bytes."""
    kept: bool
    """Whether the source still exists."""


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter(prefix="/v1/sandboxes", tags=["Sandboxes"])
    fleet = services.fleet
    mover = FileMover(fleet)

    @router.post(
        "/{sandbox_id}/move",
        responses={
            **openapi_errors(404, 409, 413, 502, 504),
            200: {"content": {NDJSON: {"schema": {"type": "string"}}}},
        },
        response_model=MoveResponse,
    )
    async def move_data(
        sandbox_id: str, body: MoveRequest, principal: SandboxWriter, request: Request
    ) -> Response | MoveResponse:
        """Copy or move a file, a directory or a screenshot to another sandbox of the same tenant.

        The transfer is atomic. With `Accept: application/x-ndjson` the response is lines of progress, `{"moved":
        BYTES, "total": BYTES}`, and a last one with `done` or `error`.
        """
        destination = SandboxFileLocation(sandbox=body.to.sandbox, path=body.to.path)

        async def work(report: Callable[[int, int | None], None]) -> FileMoveResult:
            if isinstance(body.source, ScreenSource):
                if not body.keep:
                    raise InvalidInput("keep: a screen stays where it is; leave it out")
                return await mover.save_screenshot(
                    principal.tenant, sandbox_id, destination, format=body.source.format, max_size=body.max_size
                )
            source = SandboxFileLocation(sandbox=sandbox_id, path=body.source)
            return await mover.move(
                principal.tenant, source, destination, max_size=body.max_size, keep=body.keep, on_progress=report
            )

        if NDJSON in request.headers.get("accept", ""):
            return StreamingResponse(_stream_progress(work), 200, STREAM_HEADERS, NDJSON)
        return _to_response(await work(lambda count, total: None))

    return router


async def _stream_progress(
    work: Callable[[Callable[[int, int | None], None]], Awaitable[FileMoveResult]],
) -> AsyncIterator[bytes]:
    """Yield progress lines. A client that disconnects cancels the move."""
    latest: tuple[int, int | None] = (0, None)

    def report(count: int, total: int | None) -> None:
        nonlocal latest
        latest = count, total

    task = asyncio.ensure_future(work(report))
    try:
        while not (await asyncio.wait([task], timeout=PROGRESS_INTERVAL))[0]:
            yield _json_line({"moved": latest[0], "total": latest[1]})
        try:
            yield _json_line({"done": _to_response(task.result()).model_dump(by_alias=True)})
        except PaddockError as error:
            yield _json_line({"error": {"code": error.code, "message": error.message}})
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _json_line(document: object) -> bytes:
    return json.dumps(document).encode() + b"\n"


def _to_response(moved: FileMoveResult) -> MoveResponse:
    return MoveResponse(**moved.model_dump())
