"""A gateway to servers in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

from paddock.config.mcp import McpConfig
from paddock.mcp.gateway.declarations import ServerDirectory
from paddock.mcp.gateway.gateway import McpGateway
from paddock.mcp.protocol import CallContext, JsonRpcMessage
from paddock.model.mcp import McpServer
from tests.support.in_memory_mcp_server import InMemoryMcpServer, stateless_request

CALLER = CallContext(tenant="default", caller="key1")


class GatewayHarness:
    """A gateway, and the servers behind it by name."""

    def __init__(self, *servers: McpServer | str, sets: Any = (), **settings: Any) -> None:
        declared = tuple(
            each if isinstance(each, McpServer) else McpServer(name=each, url=f"https://{each}.example/mcp")
            for each in servers
        )
        self.settings = McpConfig(servers=declared, sets=sets, **settings)
        self.directory = ServerDirectory(self.settings.servers, self.settings.sets)
        self.servers: dict[str, InMemoryMcpServer] = {
            each.name: InMemoryMcpServer({"search": {"description": "Finds."}}) for each in declared
        }
        self.opened: list[str] = []
        self.gateway = McpGateway(self.settings, self.directory, self.open_upstream)

    def open_upstream(self, server: McpServer) -> InMemoryMcpServer:
        self.opened.append(server.name)
        return self.servers.setdefault(server.name, InMemoryMcpServer())

    async def ask(
        self, path: str, method: str, params: dict[str, Any] | None = None, context: CallContext = CALLER
    ) -> dict[str, Any]:
        """Return the result, or `{"error": …}`."""
        return (await self.messages(path, method, params, context))[-1]

    async def messages(
        self, path: str, method: str, params: dict[str, Any] | None = None, context: CallContext = CALLER
    ) -> list[dict[str, Any]]:
        found = []
        async with aclosing(
            self.gateway.resolve(path, context).exchange(stateless_request(method, params), context)
        ) as messages:
            async for message in messages:
                found.append(shown(message))
        return found

    async def tool_names(self, path: str, context: CallContext = CALLER) -> list[str]:
        return [tool["name"] for tool in (await self.ask(path, "tools/list", context=context))["tools"]]

    async def call(self, path: str, tool: str, context: CallContext = CALLER, **arguments: Any) -> str:
        result = await self.ask(path, "tools/call", {"name": tool, "arguments": arguments}, context)
        return str(result["content"][0]["text"]) if "content" in result else str(result)


def shown(message: JsonRpcMessage) -> dict[str, Any]:
    if not message.is_response:
        return {"method": message.method, **message.params_object()}
    error = message.error_object()
    return {"error": error} if error else message.result_object()


@asynccontextmanager
async def open_gateway(*servers: McpServer | str, sets: Any = (), **settings: Any) -> AsyncIterator[GatewayHarness]:
    harness = GatewayHarness(*servers, sets=sets, **settings)
    try:
        yield harness
    finally:
        await harness.gateway.close()
