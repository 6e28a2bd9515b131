"""The tools of a sandbox: which there are, and calls of them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Path, Query, Request, Response
from pydantic import Field

from paddock.api.access import Reader, Writer
from paddock.api.errors import documented
from paddock.api.json_bodies import LongJson
from paddock.api.services import Services
from paddock.api.waiting import while_connected
from paddock.api.wire import Said
from paddock.live.hands import result_json
from paddock.model.screens import Tool

LONGEST_WAIT = 3600
LONGEST_CALL = 86400


class ToolSaid(Said):
    name: str = Field(examples=["click_mouse"])
    description: str
    input_schema: dict[str, Any]
    input: bool
    """Whether it uses mouse or keyboard, and so waits while a person has them."""
    changes_screen: bool
    read_only: bool

    @classmethod
    def of(cls, tool: Tool) -> ToolSaid:
        return cls(
            name=tool.name,
            description=tool.description,
            input_schema=dict(tool.input_schema),
            input=tool.input,
            changes_screen=tool.changes_screen,
            read_only=tool.read_only,
        )


class ToolList(Said):
    items: list[ToolSaid]


class Part(Said):
    """A piece of a result: text, or a picture in base64."""

    type: Literal["text", "image"]
    text: str | None = None
    data: str | None = None
    mime_type: str | None = None


class ResultSaid(Said):
    """What came of a call, as MCP has it."""

    content: list[Part]
    is_error: bool
    structured_content: dict[str, Any] | None = None
    meta: dict[str, Any] | None = Field(default=None, alias="_meta")
    """`paddock.files` are paths that the call has written."""


Name = Annotated[str, Path(pattern=r"^[A-Za-z0-9_.-]{1,128}$", examples=["screenshot"])]
Arguments = Annotated[
    dict[str, Any] | None,
    Body(description="What the tool takes, by its `inputSchema`.", examples=[{"path": "/workspace"}]),
]
Wait = Annotated[
    float | None,
    Query(ge=0, le=LONGEST_WAIT, description="Seconds to wait for a person who has mouse and keyboard."),
]
Limit = Annotated[float | None, Query(gt=0, le=LONGEST_CALL, description="Seconds the call may take.")]


def routes(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1/sandboxes/{sandbox_id}", tags=["Tools"], route_class=LongJson)
    hands = services.live.hands

    @router.get("/tools", responses=documented(404, 409, 502, 504))
    async def list_tools(sandbox_id: str, principal: Reader) -> ToolList:
        """What a sandbox can do."""
        return ToolList(items=[ToolSaid.of(tool) for tool in await hands.tools(principal.tenant, sandbox_id)])

    @router.post(
        "/tools/{name}", response_model=ResultSaid, responses=documented(404, 409, 429, 502, 504), name="call_tool"
    )
    async def call_tool(
        sandbox_id: str,
        name: Name,
        principal: Writer,
        request: Request,
        arguments: Arguments = None,
        wait: Wait = None,
        timeout: Limit = None,
    ) -> Response:
        """Have a tool do its work, and say what came of it.

        A tool that fails is answered with 200 and `isError`. One that uses mouse or keyboard waits while a person has
        them, and is answered with 409 if they are not handed back in time.
        """
        work = hands.call(principal.tenant, sandbox_id, name, arguments or {}, wait=wait, timeout=timeout)
        result = await while_connected(request, work)
        return Response(result_json(result), media_type="application/json")

    return router
