"""Images a sandbox can be made from."""

from __future__ import annotations

import asyncio
from typing import Literal

from fastapi import APIRouter
from pydantic import AwareDatetime

from paddock.api.access import Reader
from paddock.api.errors import documented
from paddock.api.services import Services
from paddock.api.wire import Said
from paddock.errors import ImageNotFound
from paddock.sandbox.images import ImageInfo


class ImageItem(Said):
    name: str
    digest: str
    kind: Literal["recipe", "oci", "host"]
    description: str
    size: int
    built_at: AwareDatetime
    current: bool
    """Whether it is what its name means today; false when its recipe has changed since."""

    @classmethod
    def of(cls, info: ImageInfo) -> ImageItem:
        made = info.manifest
        return cls(
            name=made.name,
            digest=made.digest,
            kind=made.kind,
            description=made.description,
            size=made.size,
            built_at=made.built_at,
            current=info.current,
        )


class ImageList(Said):
    items: list[ImageItem]
    """Images that are ready."""
    known: list[str]
    """Names that could be built."""


def routes(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1/images", tags=["Images"])
    images = services.images

    @router.get("", responses=documented())
    async def list_images(principal: Reader) -> ImageList:
        """List the images that are ready, and the names that could be built."""
        ready, known = await asyncio.gather(asyncio.to_thread(images.list), asyncio.to_thread(images.names))
        return ImageList(items=[ImageItem.of(info) for info in ready], known=known)

    @router.get("/{name:path}", responses=documented(404))
    async def get_image(name: str, principal: Reader) -> ImageItem:
        """One image by its name, `NAME@DIGEST` or OCI reference."""
        if "\0" in name:
            raise ImageNotFound("no image has a NUL in its name")
        return ImageItem.of(await asyncio.to_thread(images.show, name))

    return router
