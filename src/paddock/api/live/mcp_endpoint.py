"""A sandbox's tools as an MCP server over streamable HTTP."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response

from paddock.api.http.authorization import SandboxWriter
from paddock.api.http.client_disconnect import cancel_on_disconnect
from paddock.api.http.error_responses import document_errors
from paddock.api.services import ApiServices

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
_ERROR_STATUSES = (404, 409, 429, 502, 504)
Version = Annotated[str | None, Header(alias="MCP-Protocol-Version", max_length=100)]


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter(prefix="/v1/sandboxes/{sandbox_id}/mcp", tags=["Tools"])
    tools = services.live.tools

    @router.post("", openapi_extra=_MESSAGE, responses=_response_docs(), response_class=Response)
    async def handle_mcp_message(
        sandbox_id: str, principal: SandboxWriter, request: Request, version: Version = None
    ) -> Response:
        """Handle one MCP message.

        The server sends no messages of its own and keeps no sessions, so GET and DELETE answer 405. Errors are MCP
        errors, `{"jsonrpc": "2.0", "id": …, "error": {"code": …, "message": …}}`, with a matching status.
        """
        body = await request.body()
        answer = await cancel_on_disconnect(
            request, tools.handle_mcp_message(principal.tenant, sandbox_id, body, version)
        )
        return Response(answer.body, answer.status, media_type="application/json" if answer.body else None)

    return router


def _response_docs() -> dict[int | str, dict[str, Any]]:
    """Describe the responses. Errors have MCP's format, except when the request does not reach a sandbox."""
    found = document_errors(*_ERROR_STATUSES)
    for described in found.values():
        described.pop("model", None)
        described["content"] = {"application/json": {"schema": {"type": "object"}}}
    found[200] = {"description": "The response", "content": {"application/json": {"schema": {"type": "object"}}}}
    found[202] = {"description": "Accepted; notifications have no response"}
    return found
