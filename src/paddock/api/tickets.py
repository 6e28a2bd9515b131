"""Tickets, with which a browser opens a WebSocket: it cannot send a key there, and an address is no place for one."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body
from pydantic import AwareDatetime, Field

from paddock.api.access import Anyone
from paddock.api.errors import documented
from paddock.api.services import Services
from paddock.api.wire import Asked, Said


class TicketBody(Asked):
    path: str | None = Field(
        default=None, max_length=1000, pattern="^/", examples=["/v1/sandboxes/sb-0123456789abcdef/desktop"]
    )
    """The one path it is good for; any WebSocket of this server if this is left out."""


class TicketSaid(Said):
    ticket: str
    """Put it into the address as `?ticket=`; it works once."""
    expires_at: AwareDatetime


def routes(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1/tickets", tags=["Keys"])

    @router.post("", status_code=201, responses=documented(429))
    async def create_ticket(principal: Anyone, body: Annotated[TicketBody | None, Body()] = None) -> TicketSaid:
        """Make a ticket that lets its bearer open one WebSocket within a minute, as whoever asks for it."""
        ticket = services.live.tickets.issue(principal, body.path if body is not None else None)
        return TicketSaid(ticket=ticket.secret, expires_at=ticket.expires_at)

    return router
