"""A sandbox's tools as an MCP server over streamable HTTP."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import StreamingResponse
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from paddock.api.http.authorization import SandboxWriter
from paddock.api.http.client_disconnect import cancel_on_disconnect
from paddock.api.http.error_responses import openapi_errors
from paddock.api.http.server_sent_events import STREAM_HEADERS
from paddock.api.services import ApiServices
from paddock.live.tools import mcp_messages
from paddock.live.tools.mcp_progress import EVENT_STREAM, ToolProgressNotifier

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
_REFUSED_BODIES = (400, 413)
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

        The server keeps no sessions, so GET and DELETE answer 405. A longer tool call with a `progressToken` is
        answered as an event stream, if the client accepts that: progress notifications, then the result. Errors are MCP
        errors, `{"jsonrpc": "2.0", "id": …, "error": {"code": …, "message": …}}`, with a matching status.
        """
        try:
            body = await request.body()
        except HTTPException as error:
            if error.status_code not in _REFUSED_BODIES:
                raise
            refusal = mcp_messages.mcp_error_response(error.status_code, mcp_messages.INVALID_REQUEST, error.detail)
            return Response(refusal.body, refusal.status, media_type="application/json")
        accept = request.headers.get("accept", "")
        answer = await cancel_on_disconnect(
            request, tools.handle_mcp_message(principal.tenant, sandbox_id, body, version, accept)
        )
        if isinstance(answer, ToolProgressNotifier):
            return _ProgressResponse(answer)
        return Response(answer.body, answer.status, media_type="application/json" if answer.body else None)

    return router


class _ProgressResponse(StreamingResponse):
    """Streams the progress of a tool call; the call ends when the client disconnects."""

    def __init__(self, progress: ToolProgressNotifier) -> None:
        super().__init__(progress.events(), media_type=EVENT_STREAM, headers=STREAM_HEADERS)
        self._progress = progress

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._progress.close()


def _response_docs() -> dict[int | str, dict[str, Any]]:
    """Describe the responses. Errors have MCP's format, except when the request does not reach a sandbox."""
    found = openapi_errors(*_ERROR_STATUSES)
    for response_doc in found.values():
        response_doc.pop("model", None)
        response_doc["content"] = {"application/json": {"schema": {"type": "object"}}}
    found[200] = {
        "description": "The response; progress notifications and the response if the client asked for progress",
        "content": {
            "application/json": {"schema": {"type": "object"}},
            EVENT_STREAM: {"schema": {"type": "string"}},
        },
    }
    found[202] = {"description": "Accepted; notifications have no response"}
    return found
