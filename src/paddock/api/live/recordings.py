"""Routes for screen recordings: start, stop, browse and export."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path as FilePath
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Query, Request, Response
from pydantic import AwareDatetime, Field
from starlette.background import BackgroundTask
from starlette.responses import FileResponse

from paddock.api.http import file_responses
from paddock.api.http.authorization import SandboxReader, SandboxWriter
from paddock.api.http.body_models import RequestBody, ResponseBody
from paddock.api.http.client_disconnect import cancel_on_disconnect
from paddock.api.http.error_responses import openapi_errors
from paddock.api.services import ApiServices
from paddock.live.recording.video_export import MEDIA_TYPES, VideoFormat
from paddock.model.recordings import Recording, RecordingOptions, RecordingState

MAX_FRAMES = 10**9
_BYTES: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
_FILE: dict[int | str, dict[str, Any]] = {
    200: {"description": "The file.", "content": {"application/octet-stream": _BYTES}},
    206: {"description": "The part of it that `Range` asks for.", "content": {"application/octet-stream": _BYTES}},
}
_PICTURE: dict[int | str, dict[str, Any]] = {200: {"description": "A JPEG.", "content": {"image/jpeg": _BYTES}}}
_VIDEO: dict[int | str, dict[str, Any]] = {
    200: {"description": "The video.", "content": dict.fromkeys(MEDIA_TYPES.values(), _BYTES)}
}


class StartRecordingRequest(RequestBody):
    fps: float = Field(default=5.0, ge=0.1, le=30, strict=False)
    """Maximum frames per second; an unchanged screen adds none."""
    quality: int = Field(default=75, ge=1, le=95)
    max_minutes: float | None = Field(default=None, gt=0, le=10_000, strict=False)
    max_size: int | None = Field(default=None, ge=2**16)
    """Bytes."""


class RecordingResponse(ResponseBody):
    id: str = Field(examples=["rec-0123456789abcdef"])
    sandbox_id: str
    state: RecordingState
    started_at: AwareDatetime
    stopped_at: AwareDatetime | None = None
    reason: str | None = None
    """Why it stopped: `stopped`, `time`, `size`, `disk`, `sandbox` (the sandbox ended) or `server` (the server
    stopped)."""
    fps: float
    quality: int
    frames: int
    size: int
    """Bytes."""
    width: int
    height: int

    @classmethod
    def from_recording(cls, recording: Recording) -> RecordingResponse:
        return cls(**recording.model_dump(exclude={"tenant", "subject", "visibility"}))


class RecordingListResponse(ResponseBody):
    items: list[RecordingResponse]


class RecordingFrameResponse(ResponseBody):
    at: float
    """Seconds since 1970."""
    width: int
    height: int
    size: int


class RecordingFrameListResponse(ResponseBody):
    items: list[RecordingFrameResponse]


RecordingId = Annotated[str, Path(max_length=100)]


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["Recordings"])
    recordings = services.live.recordings
    of_sandbox = "/sandboxes/{sandbox_id}/recordings"
    one = of_sandbox + "/{recording_id}"

    @router.post(
        of_sandbox,
        status_code=201,
        responses=openapi_errors(404, 409, 429, 502, 504),
        response_model_exclude_none=True,
    )
    async def start_recording(
        sandbox_id: str, principal: SandboxWriter, body: Annotated[StartRecordingRequest | None, Body()] = None
    ) -> RecordingResponse:
        """Start recording a sandbox's screen. It stops at its limits, and when the sandbox ends."""
        request_body = body or StartRecordingRequest()
        options = RecordingOptions(
            fps=request_body.fps,
            quality=request_body.quality,
            max_time=None if request_body.max_minutes is None else request_body.max_minutes * 60,
            max_size=request_body.max_size,
        )
        return RecordingResponse.from_recording(await recordings.start(principal.tenant, sandbox_id, options))

    @router.post(one + "/stop", responses=openapi_errors(404), response_model_exclude_none=True)
    async def stop_recording(sandbox_id: str, recording_id: RecordingId, principal: SandboxWriter) -> RecordingResponse:
        """Stop a recording. Idempotent."""
        return RecordingResponse.from_recording(await recordings.stop(principal.tenant, sandbox_id, recording_id))

    @router.get(of_sandbox, responses=openapi_errors(404), response_model_exclude_none=True)
    async def list_sandbox_recordings(sandbox_id: str, principal: SandboxReader) -> RecordingListResponse:
        """List the recordings of a sandbox, newest first, even after its deletion."""
        found = await recordings.list(principal.tenant, sandbox_id)
        return RecordingListResponse(items=[RecordingResponse.from_recording(each) for each in found])

    @router.get("/recordings", responses=openapi_errors(), response_model_exclude_none=True)
    async def list_recordings(principal: SandboxReader) -> RecordingListResponse:
        """List all recordings, newest first."""
        return RecordingListResponse(
            items=[RecordingResponse.from_recording(each) for each in await recordings.list(principal.tenant)]
        )

    @router.get(one, responses=openapi_errors(404), response_model_exclude_none=True)
    async def get_recording(sandbox_id: str, recording_id: RecordingId, principal: SandboxReader) -> RecordingResponse:
        """Return one recording."""
        return RecordingResponse.from_recording(await recordings.get(principal.tenant, sandbox_id, recording_id))

    @router.delete(one, status_code=204, responses=openapi_errors(404))
    async def delete_recording(sandbox_id: str, recording_id: RecordingId, principal: SandboxWriter) -> None:
        """Delete a recording; a running one is stopped first."""
        await recordings.delete(principal.tenant, sandbox_id, recording_id)

    _add_file_routes(router, services, one)
    return router


def _add_file_routes(router: APIRouter, services: ApiServices, one: str) -> None:
    recordings = services.live.recordings

    @router.get(one + "/file", responses={**openapi_errors(404), **_FILE}, response_class=Response)
    async def get_recording_file(sandbox_id: str, recording_id: RecordingId, principal: SandboxReader) -> Response:
        """Download the raw recording: a line of JSON and a JPEG for each frame."""
        path = await recordings.recording_path(principal.tenant, sandbox_id, recording_id)
        return file_responses.attachment_response(path, path.name)

    @router.get(one + "/frames", responses=openapi_errors(404))
    async def list_recording_frames(
        sandbox_id: str, recording_id: RecordingId, principal: SandboxReader
    ) -> RecordingFrameListResponse:
        """List the time and size of each frame."""
        found = await recordings.read_index(principal.tenant, sandbox_id, recording_id)
        return RecordingFrameListResponse(
            items=[
                RecordingFrameResponse(at=each.at, width=each.width, height=each.height, size=each.size)
                for each in found
            ]
        )

    @router.get(one + "/frames/{number}", responses={**openapi_errors(404), **_PICTURE}, response_class=Response)
    async def get_recording_frame(
        sandbox_id: str,
        recording_id: RecordingId,
        number: Annotated[int, Path(ge=0, le=MAX_FRAMES)],
        principal: SandboxReader,
    ) -> Response:
        """Return one frame, counted from 0. `X-Time` is when it was recorded."""
        entry, data = await recordings.read_picture(principal.tenant, sandbox_id, recording_id, number)
        # Recorded frames never change.
        headers = {"Cache-Control": "private, max-age=31536000, immutable", "X-Time": f"{entry.at:.4f}"}
        return Response(data, 200, headers, "image/jpeg")

    @router.get(one + "/export", responses={**openapi_errors(404, 409, 413), **_VIDEO}, response_class=Response)
    async def export_recording(
        request: Request,
        sandbox_id: str,
        recording_id: RecordingId,
        principal: SandboxReader,
        form: Annotated[VideoFormat, Query(alias="format")] = "mp4",
    ) -> Response:
        """Export a recording as a video. `mp4` and `gif` need ffmpeg on the server; `mkv` does not."""
        resources = AsyncExitStack()
        export = resources.enter_async_context(
            recordings.exported_video(principal.tenant, sandbox_id, recording_id, form)
        )
        video_path: FilePath = await cancel_on_disconnect(request, export)
        headers = {
            "Content-Disposition": file_responses.content_disposition(f"{recording_id}.{form}"),
            "Cache-Control": "no-store",
        }
        return FileResponse(
            video_path, headers=headers, media_type=MEDIA_TYPES[form], background=BackgroundTask(resources.aclose)
        )
