"""Routes for a sandbox's tools: list them and call them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Path, Query, Request, Response
from pydantic import Field

from paddock.api.http.authorization import SandboxReader, SandboxWriter
from paddock.api.http.body_models import ResponseBody
from paddock.api.http.client_disconnect import cancel_on_disconnect
from paddock.api.http.error_responses import openapi_errors
from paddock.api.http.long_json_route import LongJsonRoute
from paddock.api.services import ApiServices
from paddock.live.tools.tool_caller import tool_result_to_json
from paddock.model.screens import SandboxTool

MAX_WAIT = 3600
MAX_TIMEOUT = 86400


class ToolResponse(ResponseBody):
    name: str = Field(examples=["click_mouse"])
    description: str
    input_schema: dict[str, Any]
    input: bool
    """Whether it uses mouse or keyboard, and so waits while a person controls them."""
    changes_screen: bool
    read_only: bool

    @classmethod
    def from_tool(cls, tool: SandboxTool) -> ToolResponse:
        return cls(
            name=tool.name,
            description=tool.description,
            input_schema=dict(tool.input_schema),
            input=tool.input,
            changes_screen=tool.changes_screen,
            read_only=tool.read_only,
        )


class ToolListResponse(ResponseBody):
    items: list[ToolResponse]


class ToolResultPart(ResponseBody):
    """A part of a tool result: text, or an image in Base64."""

    type: Literal["text", "image"]
    text: str | None = None
    data: str | None = None
    mime_type: str | None = None


class ToolCallResponse(ResponseBody):
    """The result of a tool call, in MCP's format."""

    content: list[ToolResultPart]
    is_error: bool
    structured_content: dict[str, Any] | None = None
    meta: dict[str, Any] | None = Field(default=None, alias="_meta")
    """`paddock.files` lists the paths that the call has written."""


ToolName = Annotated[str, Path(pattern=r"^[A-Za-z0-9_.-]{1,128}$", examples=["screenshot"])]
Arguments = Annotated[
    dict[str, Any] | None,
    Body(description="The tool's arguments, as described by its `inputSchema`.", examples=[{"path": "/workspace"}]),
]
Wait = Annotated[
    float | None,
    Query(ge=0, le=MAX_WAIT, description="Seconds to wait while a person controls mouse and keyboard."),
]
Limit = Annotated[float | None, Query(gt=0, le=MAX_TIMEOUT, description="Seconds the call may take.")]


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter(
        prefix="/v1/sandboxes/{sandbox_id}",
        tags=["Tools"],
        route_class=LongJsonRoute.with_workers(services.gateway.workers),
    )
    tools = services.live.tools

    @router.get("/tools", responses=openapi_errors(404, 409, 502, 504))
    async def list_tools(sandbox_id: str, principal: SandboxReader) -> ToolListResponse:
        """List the tools of a sandbox."""
        return ToolListResponse(
            items=[ToolResponse.from_tool(tool) for tool in await tools.list_tools(principal.tenant, sandbox_id)]
        )

    @router.post(
        "/tools/{name}",
        response_model=ToolCallResponse,
        responses=openapi_errors(404, 409, 429, 502, 504),
        name="call_tool",
    )
    async def call_tool(
        sandbox_id: str,
        name: ToolName,
        principal: SandboxWriter,
        request: Request,
        arguments: Arguments = None,
        wait: Wait = None,
        timeout: Limit = None,
    ) -> Response:
        """Call a tool and return its result.

        A tool that fails is answered with 200 and `isError`. A tool that uses mouse or keyboard waits while a person
        controls them, and is answered with 409 if they are not released in time.
        """
        work = tools.call_tool(principal.tenant, sandbox_id, name, arguments or {}, wait=wait, timeout=timeout)
        result = await cancel_on_disconnect(request, work)
        return Response(tool_result_to_json(result), media_type="application/json")

    return router
