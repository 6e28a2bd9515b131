"""Routes that start and stop the programs of a sandbox's desktop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

from fastapi import APIRouter
from pydantic import Field

from paddock.api.http.authorization import SandboxReader, SandboxWriter
from paddock.api.http.body_models import ResponseBody
from paddock.api.http.error_responses import openapi_errors
from paddock.api.services import ApiServices


class DesktopServiceResponse(ResponseBody):
    name: str = Field(examples=["display"])
    state: str = Field(examples=["ready"])
    """`stopped`, `waiting`, `starting`, `ready` or `failed`."""
    ready: bool
    starts: int
    """How often it was started; more than once after a crash."""
    exit_code: int | None = None
    """Exit code of its last run."""


class DesktopResponse(ResponseBody):
    up: bool
    """Whether there is a screen to watch."""
    services: list[DesktopServiceResponse]

    @classmethod
    def from_services(cls, services: Sequence[dict[str, Any]]) -> DesktopResponse:
        reported = [_parse_service(each) for each in services]
        return cls(up=any(each.name == "display" and each.ready for each in reported), services=reported)


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter(prefix="/v1/sandboxes/{sandbox_id}/desktop", tags=["Screens"])
    tools = services.live.tools

    @router.get("", responses=openapi_errors(404, 409, 502, 504))
    async def get_desktop(sandbox_id: str, principal: SandboxReader) -> DesktopResponse:
        """Return whether the desktop is running, and the state of its programs."""
        return DesktopResponse.from_services(await tools.list_desktop_services(principal.tenant, sandbox_id))

    @router.post("", responses=openapi_errors(404, 409, 502, 504))
    async def start_desktop(sandbox_id: str, principal: SandboxWriter) -> DesktopResponse:
        """Start the desktop's programs that are not running, and wait until the screen is up."""
        return DesktopResponse.from_services(await tools.start_desktop(principal.tenant, sandbox_id))

    @router.delete("", responses=openapi_errors(404, 409, 502, 504))
    async def stop_desktop(sandbox_id: str, principal: SandboxWriter) -> DesktopResponse:
        """Stop the desktop and every program with a window."""
        return DesktopResponse.from_services(await tools.stop_desktop(principal.tenant, sandbox_id))

    return router


def _parse_service(reported: dict[str, Any]) -> DesktopServiceResponse:
    starts, code = reported.get("starts"), reported.get("exit_code")
    return DesktopServiceResponse(
        name=str(reported.get("name", ""))[:64],
        state=str(reported.get("state", ""))[:64],
        ready=reported.get("ready") is True,
        starts=starts if _is_number(starts) else 0,
        exit_code=code if _is_number(code) else None,
    )


def _is_number(value: object) -> TypeGuard[int]:
    """Return whether a value from the sandbox is a whole number of plausible size."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**31
