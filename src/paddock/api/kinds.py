"""Kinds: the sorts of computer that a sandbox can be asked for as."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter
from pydantic import Field

from paddock.api.access import Reader
from paddock.api.errors import documented
from paddock.api.services import Services
from paddock.api.wire import Said
from paddock.errors import PaddockError
from paddock.model.sandbox import Limits
from paddock.model.screens import Kind


class KindLimits(Said):
    cpu: float | None = None
    memory: int | None = None
    pids: int | None = None
    disk: int | None = None
    files: int | None = None


class KindItem(Said):
    name: str = Field(examples=["linux"])
    title: str = Field(examples=["Linux (LXDE)"])
    image: str
    description: str
    screen: bool
    """Whether it has a display that can be watched and touched."""
    limits: KindLimits
    """What its sandboxes get that ask for no limits of their own."""
    built: bool
    """Whether its image is ready; `paddock image build IMAGE` makes it so."""
    recipe: bool
    """Whether the server can build it by itself; otherwise it is pulled from a registry."""

    @classmethod
    def of(cls, kind: Kind, limits: Limits, *, built: bool, recipe: bool) -> KindItem:
        return cls(
            name=kind.name,
            title=kind.title,
            image=kind.image,
            description=kind.description,
            screen=kind.screen,
            limits=KindLimits(**limits.model_dump()),
            built=built,
            recipe=recipe,
        )


class KindList(Said):
    items: list[KindItem]


def routes(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1/kinds", tags=["Kinds"])

    @router.get("", responses=documented())
    async def list_kinds(principal: Reader) -> KindList:
        """List the kinds there are; `extensions: {"paddock.kind": NAME}` asks for a sandbox of one."""
        return KindList(items=await asyncio.to_thread(look, services))

    return router


def look(services: Services) -> list[KindItem]:
    """All kinds there are. Looks at the disk."""
    kinds, library = services.fleet.kinds, services.images.library
    return [
        KindItem.of(
            kind,
            kinds.limits(kind),
            built=is_built(services, kind.image),
            recipe=library.find(kind.image) is not None,
        )
        for kind in kinds
    ]


def is_built(services: Services, image: str) -> bool:
    """Whether an image is ready. Looks at the disk."""
    try:
        services.images.resolve(image)
    except PaddockError:
        return False
    return True
