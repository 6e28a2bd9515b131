"""Routes for the input lease: which viewer controls a sandbox's mouse and keyboard."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import AwareDatetime, Field

from paddock.api.http.authorization import SandboxReader, SandboxWriter
from paddock.api.http.body_models import RequestBody, ResponseBody
from paddock.api.http.error_responses import openapi_errors
from paddock.api.services import ApiServices
from paddock.live.desktop.viewers import VIEWER_ID_PATTERN
from paddock.model.screens import InputControlHolder

VIEWER_NAME_PATTERN = r"^[^\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]+$"
"""A single line: the name is shown to agents and in terminals."""
Viewer = Annotated[str, Query(pattern=VIEWER_ID_PATTERN)]


class TakeInputRequest(RequestBody):
    viewer: str = Field(pattern=VIEWER_ID_PATTERN, examples=["tab-5f0c"])
    """An id chosen by the client; its connections send it as `?viewer=`."""
    name: str | None = Field(default=None, min_length=1, max_length=100, pattern=VIEWER_NAME_PATTERN, examples=["Ada"])
    """Name shown to others; by default the name of the key."""
    force: bool = False
    """Take the lease even from another viewer."""


class InputHolderResponse(ResponseBody):
    viewer: str
    name: str
    since: AwareDatetime


class InputResponse(ResponseBody):
    holder: InputHolderResponse | None = None
    """The viewer with the lease; without one, the agent has input."""

    @classmethod
    def from_holder(cls, holder: InputControlHolder | None) -> InputResponse:
        return cls(holder=InputHolderResponse(**dict(holder)) if holder is not None else None)


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter(prefix="/v1/sandboxes/{sandbox_id}/input", tags=["Screens"])
    leases = services.live.leases

    @router.get("", responses=openapi_errors(404))
    async def get_input(sandbox_id: str, principal: SandboxReader) -> InputResponse:
        """Return which viewer controls mouse and keyboard of the sandbox's desktop and terminals."""
        await services.fleet.get(principal.tenant, sandbox_id)
        return InputResponse.from_holder(leases.input_holder(sandbox_id))

    @router.post("", responses=openapi_errors(404, 409))
    async def take_input(sandbox_id: str, body: TakeInputRequest, principal: SandboxWriter) -> InputResponse:
        """Take control of mouse and keyboard. The agent's input tools wait until control is released.

        Control is released automatically 5 seconds after the viewer's last connection closes, or after 30 seconds
        without one.
        """
        name = body.name or (await services.keys.get(principal.key_id)).name
        holder = await leases.take_input(principal.tenant, sandbox_id, body.viewer, name, force=body.force)
        return InputResponse.from_holder(holder)

    @router.delete("", status_code=204, responses=openapi_errors(404, 409))
    async def release_input(sandbox_id: str, viewer: Viewer, principal: SandboxWriter, force: bool = False) -> None:
        """Release mouse and keyboard to the agent; with `force`, also when another viewer holds them."""
        await leases.release_input(principal.tenant, sandbox_id, viewer, force=force)

    return router
