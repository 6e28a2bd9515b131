"""A sandbox's tools for any client of MCP, by streamable HTTP."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response

from paddock.api.access import Writer
from paddock.api.errors import documented
from paddock.api.services import Services
from paddock.api.waiting import while_connected

_MESSAGE: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {"type": "object"},
                "example": {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
            }
        },
    }
}
_ANSWERS = (404, 409, 429, 502, 504)
Version = Annotated[str | None, Header(alias="MCP-Protocol-Version", max_length=100)]


def routes(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1/sandboxes/{sandbox_id}/mcp", tags=["Tools"])
    hands = services.live.hands

    @router.post("", openapi_extra=_MESSAGE, responses=_answers(), response_class=Response)
    async def speak_mcp(sandbox_id: str, principal: Writer, request: Request, version: Version = None) -> Response:
        """Answer one message of MCP. Nothing is sent unasked and there are no sessions, so GET and DELETE answer 405.

        Errors are MCP's too, `{"jsonrpc": "2.0", "id": …, "error": {"code": …, "message": …}}`, with a fitting status.
        """
        body = await request.body()
        answer = await while_connected(request, hands.rpc(principal.tenant, sandbox_id, body, version))
        return Response(answer.body, answer.status, media_type="application/json" if answer.body else None)

    return router


def _answers() -> dict[int | str, dict[str, Any]]:
    """What may come back. Errors look as MCP has them, unless the request does not even get to a sandbox."""
    found = documented(*_ANSWERS)
    for described in found.values():
        described.pop("model", None)
        described["content"] = {"application/json": {"schema": {"type": "object"}}}
    found[200] = {"description": "The answer", "content": {"application/json": {"schema": {"type": "object"}}}}
    found[202] = {"description": "Taken; it is not answered"}
    return found
