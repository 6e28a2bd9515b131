"""A gateway to servers in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

from paddock.config.mcp import McpConfig
from paddock.events.event_log import EventLog
from paddock.mcp.gateway.call_records import CallRecorder
from paddock.mcp.gateway.gateway import McpGateway
from paddock.mcp.gateway.server_directory import ServerDirectory
from paddock.mcp.gateway.tool_versions import ToolVersionBook
from paddock.mcp.protocol import CallContext, JsonRpcMessage
from paddock.model.mcp import McpServer
from paddock.store.mcp_call_store import McpCallStore
from paddock.store.mcp_server_store import McpServerStore
from tests.support.in_memory_mcp_server import InMemoryMcpServer, stateless_request

CALLER = CallContext(tenant="default", caller="key1")


class GatewayHarness:
    """A gateway, and the servers behind it by name."""

    def __init__(
        self,
        *servers: McpServer | str,
        sets: Any = (),
        store: McpCallStore | None = None,
        server_store: McpServerStore | None = None,
        events: EventLog | None = None,
        **settings: Any,
    ) -> None:
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
        self.recorder = CallRecorder(store, events, record_size=self.settings.record_size, keep=None, every=0.001)
        self.versions = ToolVersionBook(server_store, approve_new=self.settings.approve_new_tools)
        self.gateway = McpGateway(
            self.settings, self.directory, self.open_upstream, versions=self.versions, recorder=self.recorder
        )

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
    harness.recorder.open()
    await harness.versions.load()
    try:
        yield harness
    finally:
        await harness.gateway.close()
