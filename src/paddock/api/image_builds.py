"""Builds of images, as jobs of the server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, Literal

from fastapi import APIRouter
from fastapi.responses import StreamingResponse
from pydantic import AwareDatetime
from starlette.responses import Response

from paddock.api.access import Admin
from paddock.api.errors import documented
from paddock.api.events import Accept
from paddock.api.following import FOLLOWS, STILL_HERE, STREAM_HEADERS, alive
from paddock.api.services import Services
from paddock.api.wire import Said
from paddock.sandbox.images.jobs import Build


class BuildSaid(Said):
    id: str
    image: str
    state: Literal["running", "done", "failed", "cancelled"]
    step: str
    fraction: float | None
    """Of the whole build, 0 to 1, or nothing when nobody knows."""
    lines: list[str]
    """The last lines of output."""
    error: str | None
    started_at: AwareDatetime
    ended_at: AwareDatetime | None

    @classmethod
    def of(cls, build: Build) -> BuildSaid:
        return cls.model_validate({**build.model_dump(), "lines": list(build.lines)})


class BuildList(Said):
    items: list[BuildSaid]
    """Newest first."""


_DESCRIBED: dict[int | str, dict[str, Any]] = {
    200: {
        "model": BuildSaid,
        "description": "JSON, or for `Accept: text/event-stream` the same whenever it changes, until it has ended.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


def routes(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1/images", tags=["Images"])
    jobs = services.builds

    @router.get("/builds", responses=documented())
    async def list_builds(principal: Admin) -> BuildList:
        """Builds since the server started."""
        return BuildList(items=[BuildSaid.of(build) for build in jobs.list()])

    @router.post("/{name}/build", status_code=202, responses=documented(404, 409))
    async def build_image(name: str, principal: Admin) -> BuildSaid:
        """Build an image by the name of its recipe, which may take minutes. One at a time; the same one goes on."""
        return BuildSaid.of(await jobs.start(name))

    @router.get("/builds/{build_id}", responses={**documented(404), **_DESCRIBED}, response_model=None)
    async def get_build(build_id: str, principal: Admin, accept: Accept = "") -> Response:
        """How far a build is."""
        found = BuildSaid.of(jobs.get(build_id))
        if "text/event-stream" in accept:
            return StreamingResponse(_frames(services, build_id), 200, STREAM_HEADERS, "text/event-stream")
        return Response(found.model_dump_json(by_alias=True), media_type="application/json")

    @router.delete("/builds/{build_id}", responses=documented(404))
    async def cancel_build(build_id: str, principal: Admin) -> BuildSaid:
        """Stop a build; nothing of it is left."""
        return BuildSaid.of(await jobs.cancel(build_id))

    return router


async def _frames(services: Services, build_id: str) -> AsyncIterator[bytes]:
    yield FOLLOWS
    async with aclosing(alive(services.builds.follow(build_id))) as following:  # type: ignore[type-var]
        async for build in following:
            if build is None:
                yield STILL_HERE
            else:
                told = BuildSaid.of(build).model_dump_json(by_alias=True)
                yield f"event: {build.state}\ndata: {told}\n\n".encode()
