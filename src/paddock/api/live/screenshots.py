"""Route for screenshots of a sandbox."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Response

from paddock.api.http.authorization import SandboxReader
from paddock.api.http.error_responses import openapi_errors
from paddock.api.services import ApiServices
from paddock.errors import InvalidInput
from paddock.live.tools.tool_caller import ScreenshotOptions

_REGION = re.compile(r"(\d{1,5}),(\d{1,5}),(\d{1,5}),(\d{1,5})")
_PICTURE = {"schema": {"type": "string", "format": "binary"}}
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The picture",
        "content": {"image/jpeg": _PICTURE, "image/png": _PICTURE},
        "headers": {
            name: {"description": text, "schema": {"type": kind}}
            for name, kind, text in (
                ("ETag", "string", "Changes with the screen; send it back as `If-None-Match`."),
                ("X-Paddock-Width", "integer", "Width of the whole screen, before scaling."),
                ("X-Paddock-Height", "integer", "Height of the whole screen."),
            )
        },
    },
    304: {"description": "The screen has not changed"},
    **openapi_errors(404, 409, 502, 504),
}
Scale = Annotated[float, Query(ge=0.05, le=1, description="Of the screen's own size.")]
Quality = Annotated[int, Query(ge=1, le=95, description="Of JPEG.")]
Region = Annotated[
    str | None,
    Query(
        pattern=_REGION.pattern,
        max_length=23,
        description="`left,top,width,height` in the screen's own pixels.",
        examples=["0,0,640,400"],
    ),
]
EtagHeader = Annotated[str | None, Header(max_length=200)]


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter(prefix="/v1/sandboxes/{sandbox_id}", tags=["Screens"])
    tools = services.live.tools

    @router.get("/screenshot", responses=_ANSWERS, response_class=Response)
    async def take_screenshot(
        sandbox_id: str,
        principal: SandboxReader,
        format: Annotated[Literal["jpeg", "png"], Query()] = "jpeg",
        scale: Scale = 1.0,
        quality: Quality = 80,
        region: Region = None,
        if_none_match: EtagHeader = None,
    ) -> Response:
        """Take a screenshot. With the `ETag` of an earlier response, an unchanged screen is answered with 304."""
        view = ScreenshotOptions(format, scale, quality, _parse_region(region))
        tag = None if if_none_match is None else if_none_match.strip().removeprefix("W/")
        shot = await tools.take_screenshot(principal.tenant, sandbox_id, view, tag)
        headers = {"Cache-Control": "no-cache"}
        if shot is None:
            return Response(status_code=304, headers={**headers, "ETag": tag or ""})
        headers |= {"ETag": shot.etag, "X-Paddock-Width": str(shot.width), "X-Paddock-Height": str(shot.height)}
        return Response(shot.data, headers=headers, media_type=shot.mime)

    return router


def _parse_region(text: str | None) -> tuple[int, int, int, int] | None:
    if text is None:
        return None
    found = _REGION.fullmatch(text)
    if found is None:
        raise InvalidInput("region: write left,top,width,height in pixels, such as 0,0,640,400")
    left, top, width, height = map(int, found.groups())
    if not width or not height:
        raise InvalidInput("region: width and height must be at least 1")
    return left, top, width, height
