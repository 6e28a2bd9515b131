"""Recordings of screens: made, looked into, brought away as they are or as films."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path as FilePath
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Query, Request, Response
from pydantic import AwareDatetime, Field
from starlette.background import BackgroundTask
from starlette.responses import FileResponse

from paddock.api import sending
from paddock.api.access import Reader, Writer
from paddock.api.errors import documented
from paddock.api.services import Services
from paddock.api.waiting import while_connected
from paddock.api.wire import Asked, Said
from paddock.live.films import MEDIA, Form
from paddock.model.recordings import Recording, RecordingState, RecordingWish

MOST_PICTURES = 10**9
_BYTES: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
_FILE: dict[int | str, dict[str, Any]] = {
    200: {"description": "The file.", "content": {"application/octet-stream": _BYTES}},
    206: {"description": "The part of it that `Range` asks for.", "content": {"application/octet-stream": _BYTES}},
}
_PICTURE: dict[int | str, dict[str, Any]] = {200: {"description": "A JPEG.", "content": {"image/jpeg": _BYTES}}}
_FILM: dict[int | str, dict[str, Any]] = {
    200: {"description": "The film.", "content": dict.fromkeys(MEDIA.values(), _BYTES)}
}


class RecordingBody(Asked):
    fps: float = Field(default=5.0, ge=0.1, le=30, strict=False)
    """Most pictures a second; a screen that does not change costs none."""
    quality: int = Field(default=75, ge=1, le=95)
    max_minutes: float | None = Field(default=None, gt=0, le=10_000, strict=False)
    max_size: int | None = Field(default=None, ge=2**16)
    """Bytes."""


class RecordingSaid(Said):
    id: str = Field(examples=["rec-0123456789abcdef"])
    sandbox_id: str
    state: RecordingState
    started_at: AwareDatetime
    stopped_at: AwareDatetime | None = None
    reason: str | None = None
    """Why it stopped: `stopped`, `time`, `size`, `disk`, `sandbox` (it ended) or `server` (it did)."""
    fps: float
    quality: int
    frames: int
    size: int
    """Bytes."""
    width: int
    height: int

    @classmethod
    def of(cls, recording: Recording) -> RecordingSaid:
        return cls(**recording.model_dump(exclude={"tenant", "subject", "visibility"}))


class RecordingList(Said):
    items: list[RecordingSaid]


class PictureSaid(Said):
    at: float
    """Seconds since 1970."""
    width: int
    height: int
    size: int


class PictureList(Said):
    items: list[PictureSaid]


RecordingId = Annotated[str, Path(max_length=100)]


def routes(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["Recordings"])
    recordings = services.live.recordings
    of_sandbox = "/sandboxes/{sandbox_id}/recordings"
    one = of_sandbox + "/{recording_id}"

    @router.post(
        of_sandbox, status_code=201, responses=documented(404, 409, 429, 502, 504), response_model_exclude_none=True
    )
    async def start_recording(
        sandbox_id: str, principal: Writer, body: Annotated[RecordingBody | None, Body()] = None
    ) -> RecordingSaid:
        """Begin to record a sandbox's screen. It stops by itself at its limits, and when the sandbox ends."""
        asked = body or RecordingBody()
        wish = RecordingWish(
            fps=asked.fps,
            quality=asked.quality,
            max_time=None if asked.max_minutes is None else asked.max_minutes * 60,
            max_size=asked.max_size,
        )
        return RecordingSaid.of(await recordings.start(principal.tenant, sandbox_id, wish))

    @router.post(one + "/stop", responses=documented(404), response_model_exclude_none=True)
    async def stop_recording(sandbox_id: str, recording_id: RecordingId, principal: Writer) -> RecordingSaid:
        """Stop a recording. One that has stopped stays as it is."""
        return RecordingSaid.of(await recordings.stop(principal.tenant, sandbox_id, recording_id))

    @router.get(of_sandbox, responses=documented(404), response_model_exclude_none=True)
    async def list_sandbox_recordings(sandbox_id: str, principal: Reader) -> RecordingList:
        """List the recordings of a sandbox, newest first; also those of one that is no more."""
        found = await recordings.list(principal.tenant, sandbox_id)
        return RecordingList(items=[RecordingSaid.of(each) for each in found])

    @router.get("/recordings", responses=documented(), response_model_exclude_none=True)
    async def list_recordings(principal: Reader) -> RecordingList:
        """List all recordings, newest first."""
        return RecordingList(items=[RecordingSaid.of(each) for each in await recordings.list(principal.tenant)])

    @router.get(one, responses=documented(404), response_model_exclude_none=True)
    async def get_recording(sandbox_id: str, recording_id: RecordingId, principal: Reader) -> RecordingSaid:
        """All that is known of one recording."""
        return RecordingSaid.of(await recordings.get(principal.tenant, sandbox_id, recording_id))

    @router.delete(one, status_code=204, responses=documented(404))
    async def delete_recording(sandbox_id: str, recording_id: RecordingId, principal: Writer) -> None:
        """Forget a recording; one that is under way is stopped first."""
        await recordings.delete(principal.tenant, sandbox_id, recording_id)

    _file_routes(router, services, one)
    return router


def _file_routes(router: APIRouter, services: Services, one: str) -> None:
    recordings = services.live.recordings

    @router.get(one + "/file", responses={**documented(404), **_FILE}, response_class=Response)
    async def get_recording_file(sandbox_id: str, recording_id: RecordingId, principal: Reader) -> Response:
        """A recording as it is kept: a line of JSON and a JPEG for each picture."""
        path = await recordings.file(principal.tenant, sandbox_id, recording_id)
        return sending.attachment(path, path.name)

    @router.get(one + "/frames", responses=documented(404))
    async def list_recording_frames(sandbox_id: str, recording_id: RecordingId, principal: Reader) -> PictureList:
        """When each picture of a recording was there, and how large it is."""
        found = await recordings.index(principal.tenant, sandbox_id, recording_id)
        return PictureList(
            items=[PictureSaid(at=each.at, width=each.width, height=each.height, size=each.size) for each in found]
        )

    @router.get(one + "/frames/{number}", responses={**documented(404), **_PICTURE}, response_class=Response)
    async def get_recording_frame(
        sandbox_id: str,
        recording_id: RecordingId,
        number: Annotated[int, Path(ge=0, le=MOST_PICTURES)],
        principal: Reader,
    ) -> Response:
        """One picture of a recording, counted from 0. `X-Time` is when it was there."""
        place, data = await recordings.picture(principal.tenant, sandbox_id, recording_id, number)
        # What was recorded does not change any more.
        headers = {"Cache-Control": "private, max-age=31536000, immutable", "X-Time": f"{place.at:.4f}"}
        return Response(data, 200, headers, "image/jpeg")

    @router.get(one + "/export", responses={**documented(404, 409, 413), **_FILM}, response_class=Response)
    async def export_recording(
        request: Request,
        sandbox_id: str,
        recording_id: RecordingId,
        principal: Reader,
        form: Annotated[Form, Query(alias="format")] = "mp4",
    ) -> Response:
        """A recording as a film. `mp4` and `gif` need ffmpeg on the server; `mkv` does not."""
        held = AsyncExitStack()
        making = held.enter_async_context(recordings.film(principal.tenant, sandbox_id, recording_id, form))
        film: FilePath = await while_connected(request, making)
        headers = {"Content-Disposition": sending.disposition(f"{recording_id}.{form}"), "Cache-Control": "no-store"}
        return FileResponse(film, headers=headers, media_type=MEDIA[form], background=BackgroundTask(held.aclose))
