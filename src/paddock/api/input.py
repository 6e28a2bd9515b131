"""Who has a sandbox's mouse and keyboard: asked, taken, handed back."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import AwareDatetime, Field

from paddock.api.access import Reader, Writer
from paddock.api.errors import documented
from paddock.api.services import Services
from paddock.api.wire import Asked, Said
from paddock.live.desktops import VIEWER
from paddock.model.screens import Holder

NAME = r"^[^\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]+$"
"""One line: agents and terminals are told it."""
Viewer = Annotated[str, Query(pattern=VIEWER)]


class TakeBody(Asked):
    viewer: str = Field(pattern=VIEWER, examples=["tab-5f0c"])
    """An id of the client's own, which its connections show as `?viewer=`."""
    name: str | None = Field(default=None, min_length=1, max_length=100, pattern=NAME, examples=["Ada"])
    """Whom others are told of; the name of the key if this is left out."""
    force: bool = False
    """Take it also from somebody who has it."""


class HolderSaid(Said):
    viewer: str
    name: str
    since: AwareDatetime


class InputSaid(Said):
    holder: HolderSaid | None = None
    """Who has it; while nobody has, it is the agent's."""

    @classmethod
    def of(cls, holder: Holder | None) -> InputSaid:
        return cls(holder=HolderSaid(**dict(holder)) if holder is not None else None)


def routes(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1/sandboxes/{sandbox_id}/input", tags=["Screens"])
    leases = services.live.leases

    @router.get("", responses=documented(404))
    async def get_input(sandbox_id: str, principal: Reader) -> InputSaid:
        """Who has mouse and keyboard of the sandbox's desktop and terminals."""
        await services.fleet.get(principal.tenant, sandbox_id)
        return InputSaid.of(leases.holder(sandbox_id))

    @router.post("", responses=documented(404, 409))
    async def take_input(sandbox_id: str, body: TakeBody, principal: Writer) -> InputSaid:
        """Take mouse and keyboard. Until they are handed back, the agent's tools that use them wait.

        They are handed back by themselves 5 seconds after the last connection of the viewer is gone, or after 30
        seconds without one.
        """
        name = body.name or (await services.keys.get(principal.key_id)).name
        holder = await leases.take(principal.tenant, sandbox_id, body.viewer, name, force=body.force)
        return InputSaid.of(holder)

    @router.delete("", status_code=204, responses=documented(404, 409))
    async def release_input(sandbox_id: str, viewer: Viewer, principal: Writer, force: bool = False) -> None:
        """Hand mouse and keyboard back to the agent; with `force`, also those that another viewer has."""
        await leases.release(principal.tenant, sandbox_id, viewer, force=force)

    return router
