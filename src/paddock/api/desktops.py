"""Starting and stopping what a sandbox's screen is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

from fastapi import APIRouter
from pydantic import Field

from paddock.api.access import Reader, Writer
from paddock.api.errors import documented
from paddock.api.services import Services
from paddock.api.wire import Said


class ServiceSaid(Said):
    name: str = Field(examples=["display"])
    state: str = Field(examples=["ready"])
    """`stopped`, `waiting`, `starting`, `ready` or `failed`."""
    ready: bool
    starts: int
    """How often it was started; more than once when it has died."""
    exit_code: int | None = None
    """Of the last time it ended."""


class DesktopSaid(Said):
    up: bool
    """Whether there is a screen that can be watched."""
    services: list[ServiceSaid]

    @classmethod
    def of(cls, services: Sequence[dict[str, Any]]) -> DesktopSaid:
        said = [_service(each) for each in services]
        return cls(up=any(each.name == "display" and each.ready for each in said), services=said)


def routes(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1/sandboxes/{sandbox_id}/desktop", tags=["Screens"])
    hands = services.live.hands

    @router.get("", responses=documented(404, 409, 502, 504))
    async def get_desktop(sandbox_id: str, principal: Reader) -> DesktopSaid:
        """Whether a sandbox's screen is there, and the programs it is made of."""
        return DesktopSaid.of(await hands.desktop(principal.tenant, sandbox_id))

    @router.post("", responses=documented(404, 409, 502, 504))
    async def start_desktop(sandbox_id: str, principal: Writer) -> DesktopSaid:
        """Start what does not run of a sandbox's screen, and wait until it is there."""
        return DesktopSaid.of(await hands.start_desktop(principal.tenant, sandbox_id))

    @router.delete("", responses=documented(404, 409, 502, 504))
    async def stop_desktop(sandbox_id: str, principal: Writer) -> DesktopSaid:
        """Stop a sandbox's screen, and with it every program that has a window."""
        return DesktopSaid.of(await hands.stop_desktop(principal.tenant, sandbox_id))

    return router


def _service(said: dict[str, Any]) -> ServiceSaid:
    starts, code = said.get("starts"), said.get("exit_code")
    return ServiceSaid(
        name=str(said.get("name", ""))[:64],
        state=str(said.get("state", ""))[:64],
        ready=said.get("ready") is True,
        starts=starts if _is_number(starts) else 0,
        exit_code=code if _is_number(code) else None,
    )


def _is_number(value: object) -> TypeGuard[int]:
    """Whether a box says a number of the size that these have."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**31
