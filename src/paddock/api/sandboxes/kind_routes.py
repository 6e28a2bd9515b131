"""Routes for kinds: the types of computer that a sandbox can be requested as."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter
from pydantic import Field

from paddock.api.http.authorization import SandboxReader
from paddock.api.http.body_models import ResponseBody
from paddock.api.http.error_responses import openapi_errors
from paddock.api.services import ApiServices
from paddock.errors import PaddockError
from paddock.model.sandbox import SandboxLimits
from paddock.model.screens import SandboxKind


class KindLimits(ResponseBody):
    cpu: float | None = None
    memory: int | None = None
    pids: int | None = None
    disk: int | None = None
    files: int | None = None


class KindResponse(ResponseBody):
    name: str = Field(examples=["linux"])
    title: str = Field(examples=["Linux (LXDE)"])
    image: str
    description: str
    screen: bool
    """Whether it has a display to watch and control."""
    limits: KindLimits
    """Limits of sandboxes that request none."""
    network: list[str]
    """Network policy of sandboxes that request none."""
    built: bool
    """Whether its image is ready; `paddock image build IMAGE` builds it."""
    recipe: bool
    """Whether the server can build the image; otherwise it is pulled from a registry."""

    @classmethod
    def from_kind(
        cls, kind: SandboxKind, limits: SandboxLimits, network: tuple[str, ...], *, built: bool, recipe: bool
    ) -> KindResponse:
        return cls(
            name=kind.name,
            title=kind.title,
            image=kind.image,
            description=kind.description,
            screen=kind.screen,
            limits=KindLimits(**limits.model_dump()),
            network=list(network),
            built=built,
            recipe=recipe,
        )


class KindListResponse(ResponseBody):
    items: list[KindResponse]


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter(prefix="/v1/kinds", tags=["Kinds"])

    @router.get("", responses=openapi_errors())
    async def list_kinds(principal: SandboxReader) -> KindListResponse:
        """List the kinds; `extensions: {"paddock.kind": NAME}` requests a sandbox of one."""
        return KindListResponse(items=await asyncio.to_thread(describe_sandbox_kinds, services))

    return router


def describe_sandbox_kinds(services: ApiServices) -> list[KindResponse]:
    """Return all kinds with the state of their images. Reads from disk."""
    kinds, library = services.fleet.kinds, services.images.library
    return [
        KindResponse.from_kind(
            kind,
            kinds.default_limits(kind),
            services.config.network.default if kind.network is None else kind.network,
            built=is_image_built(services, kind.image),
            recipe=library.find(kind.image) is not None,
        )
        for kind in kinds
    ]


def is_image_built(services: ApiServices, image: str) -> bool:
    """Return whether an image is ready. Reads from disk."""
    try:
        services.images.resolve(image)
    except PaddockError:
        return False
    return True
