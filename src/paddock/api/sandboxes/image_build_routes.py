"""Routes for image builds, which run as jobs of the server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, Literal

from fastapi import APIRouter
from fastapi.responses import StreamingResponse
from pydantic import AwareDatetime
from starlette.responses import Response

from paddock.api.http.authorization import Admin
from paddock.api.http.body_models import ResponseBody
from paddock.api.http.error_responses import openapi_errors
from paddock.api.http.event_log_responses import AcceptHeader
from paddock.api.http.server_sent_events import HEARTBEAT_COMMENT, STREAM_HEADERS, STREAM_OPENED, with_heartbeats
from paddock.api.services import ApiServices
from paddock.sandbox.images.build_jobs import ImageBuild


class ImageBuildResponse(ResponseBody):
    id: str
    image: str
    state: Literal["running", "done", "failed", "cancelled"]
    step: str
    fraction: float | None
    """Progress of the whole build from 0 to 1, or null if unknown."""
    step_number: int | None
    """Number of the step from 1, or null if unknown."""
    step_count: int | None
    """Number of steps, or null if unknown."""
    lines: list[str]
    """The last lines of output."""
    error: str | None
    started_at: AwareDatetime
    ended_at: AwareDatetime | None

    @classmethod
    def from_build(cls, build: ImageBuild) -> ImageBuildResponse:
        return cls.model_validate({**build.model_dump(), "lines": list(build.lines)})


class ImageBuildListResponse(ResponseBody):
    items: list[ImageBuildResponse]
    """Newest first."""


_BUILD_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "model": ImageBuildResponse,
        "description": "JSON, or for `Accept: text/event-stream` the same whenever it changes, until it has ended.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter(prefix="/v1/images", tags=["Images"])
    jobs = services.builds

    @router.get("/builds", responses=openapi_errors())
    async def list_builds(principal: Admin) -> ImageBuildListResponse:
        """List builds since the server started."""
        return ImageBuildListResponse(items=[ImageBuildResponse.from_build(build) for build in jobs.list()])

    @router.post("/{name}/build", status_code=202, responses=openapi_errors(404, 409))
    async def build_image(name: str, principal: Admin) -> ImageBuildResponse:
        """Start to build an image by its recipe's name; it may take minutes.

        One build runs at a time; a running build of the same image is returned.
        """
        return ImageBuildResponse.from_build(await jobs.start(name))

    @router.get("/builds/{build_id}", responses={**openapi_errors(404), **_BUILD_RESPONSES}, response_model=None)
    async def get_build(build_id: str, principal: Admin, accept: AcceptHeader = "") -> Response:
        """Return the progress of a build, as JSON or as a stream."""
        found = ImageBuildResponse.from_build(jobs.get(build_id))
        if "text/event-stream" in accept:
            return StreamingResponse(_stream_build(services, build_id), 200, STREAM_HEADERS, "text/event-stream")
        return Response(found.model_dump_json(by_alias=True), media_type="application/json")

    @router.delete("/builds/{build_id}", responses=openapi_errors(404))
    async def cancel_build(build_id: str, principal: Admin) -> ImageBuildResponse:
        """Cancel a build and discard its partial result."""
        return ImageBuildResponse.from_build(await jobs.cancel(build_id))

    return router


async def _stream_build(services: ApiServices, build_id: str) -> AsyncIterator[bytes]:
    yield STREAM_OPENED
    async with aclosing(with_heartbeats(services.builds.follow(build_id))) as following:  # type: ignore[type-var]
        async for build in following:
            if build is None:
                yield HEARTBEAT_COMMENT
            else:
                document = ImageBuildResponse.from_build(build).model_dump_json(by_alias=True)
                yield f"event: {build.state}\ndata: {document}\n\n".encode()
