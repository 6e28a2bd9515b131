"""A server of both eras, made with MCP's own SDK."""

from __future__ import annotations

from typing import Annotated, Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from pydantic import BaseModel, Field

NAME_SCHEMA: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}}


class Name(BaseModel):
    name: str


def sdk_server_app() -> Any:
    server = MCPServer("both-eras", instructions="For tests.")

    @server.tool()
    async def greet(context: Context[Any, Any]) -> str:
        """Ask the client by a request of the server; needs a session."""
        answer = await context.elicit(message="Name?", schema=Name)
        return f"Hello {getattr(getattr(answer, 'data', None), 'name', answer.action)}"

    @server.tool()
    async def confirm(context: Context[Any, Any]) -> str | InputRequiredResult:
        """Ask the client by the result; needs the stateless revision."""
        answer = (context.input_responses or {}).get("name")
        if isinstance(answer, ElicitResult) and answer.content:
            return f"{answer.content['name']} {context.request_state}"
        asked = ElicitRequest(params=ElicitRequestFormParams(message="Name?", requested_schema=NAME_SCHEMA))
        return InputRequiredResult(input_requests={"name": asked}, request_state="kept")

    @server.tool()
    def query(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
        """Return the region; the server compares it with its header."""
        return region

    @server.tool()
    async def change(context: Context[Any, Any]) -> str:
        """Change the list of tools."""
        server.add_tool(lambda: "new", name="new", description="New.")
        await context.notify_tools_changed()
        return "changed"

    @server.resource("test://text")
    def text() -> str:
        return "text"

    @server.prompt()
    def ask(topic: str) -> str:
        return f"Tell about {topic}."

    return server.streamable_http_app()
