"""Route for tickets that open WebSockets: browsers cannot send a key there, and addresses end up in logs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body
from pydantic import AwareDatetime, Field

from paddock.api.http.authorization import AnyKey
from paddock.api.http.body_models import RequestBody, ResponseBody
from paddock.api.http.error_responses import openapi_errors
from paddock.api.services import ApiServices


class CreateTicketRequest(RequestBody):
    path: str | None = Field(
        default=None, max_length=1000, pattern="^/", examples=["/v1/sandboxes/sb-0123456789abcdef/desktop"]
    )
    """The only path it is valid for; any WebSocket of this server if omitted."""


class TicketResponse(ResponseBody):
    ticket: str
    """Sent in the address as `?ticket=`; it works once."""
    expires_at: AwareDatetime


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter(prefix="/v1/tickets", tags=["Keys"])

    @router.post("", status_code=201, responses=openapi_errors(429))
    async def create_ticket(
        principal: AnyKey, body: Annotated[CreateTicketRequest | None, Body()] = None
    ) -> TicketResponse:
        """Create a ticket that opens one WebSocket as the caller, within a minute."""
        ticket = services.live.tickets.issue(principal, body.path if body is not None else None)
        return TicketResponse(ticket=ticket.secret, expires_at=ticket.expires_at)

    return router
