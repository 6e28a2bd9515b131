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

    @classmethod
    def of(cls, kind: Kind, limits: Limits, built: bool) -> KindItem:
        return cls(
            name=kind.name,
            title=kind.title,
            image=kind.image,
            description=kind.description,
            screen=kind.screen,
            limits=KindLimits(**limits.model_dump()),
            built=built,
        )


class KindList(Said):
    items: list[KindItem]


def routes(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1/kinds", tags=["Kinds"])
    fleet, images = services.fleet, services.images

    def is_built(kind: Kind) -> bool:
        try:
            images.resolve(kind.image)
        except PaddockError:
            return False
        return True

    @router.get("", responses=documented())
    async def list_kinds(principal: Reader) -> KindList:
        """List the kinds there are; `extensions: {"paddock.kind": NAME}` asks for a sandbox of one."""

        def look() -> list[KindItem]:
            return [KindItem.of(kind, fleet.kinds.limits(kind), is_built(kind)) for kind in fleet.kinds]

        return KindList(items=await asyncio.to_thread(look))

    return router
