"""Routes for sandbox images."""

from __future__ import annotations

import asyncio
from typing import Literal

from fastapi import APIRouter
from pydantic import AwareDatetime

from paddock.api.http.authorization import SandboxReader
from paddock.api.http.body_models import ResponseBody
from paddock.api.http.error_responses import openapi_errors
from paddock.api.services import ApiServices
from paddock.errors import ImageNotFound
from paddock.sandbox.images import ImageInfo


class ImageResponse(ResponseBody):
    name: str
    digest: str
    kind: Literal["recipe", "oci", "host"]
    description: str
    size: int
    built_at: AwareDatetime
    current: bool
    """Whether the image is the current version of its name; false once its recipe has changed."""

    @classmethod
    def from_image_info(cls, info: ImageInfo) -> ImageResponse:
        manifest = info.manifest
        return cls(
            name=manifest.name,
            digest=manifest.digest,
            kind=manifest.kind,
            description=manifest.description,
            size=manifest.size,
            built_at=manifest.built_at,
            current=info.current,
        )


class ImageListResponse(ResponseBody):
    items: list[ImageResponse]
    """Images that are ready."""
    known: list[str]
    """Names that can be built."""


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter(prefix="/v1/images", tags=["Images"])
    images = services.images

    @router.get("", responses=openapi_errors())
    async def list_images(principal: SandboxReader) -> ImageListResponse:
        """List the images that are ready, and the names that can be built."""
        ready, known = await asyncio.gather(asyncio.to_thread(images.list), asyncio.to_thread(images.names))
        return ImageListResponse(items=[ImageResponse.from_image_info(info) for info in ready], known=known)

    @router.get("/{name:path}", responses=openapi_errors(404))
    async def get_image(name: str, principal: SandboxReader) -> ImageResponse:
        """Return one image by its name, `NAME@DIGEST` or OCI reference."""
        if "\0" in name:
            raise ImageNotFound("no image has a NUL in its name")
        return ImageResponse.from_image_info(await asyncio.to_thread(images.show, name))

    return router
