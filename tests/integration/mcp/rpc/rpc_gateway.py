"""A gRPC server with an MCP server in memory, and exchanges with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from paddock.errors import (
    Forbidden,
    NotFound,
    Unauthorized,
)
from paddock.mcp.protocol import CallContext, JsonRpcMessage, McpEndpoint
from paddock.mcp.protocol.messages import make_request
from paddock.mcp.protocol.revisions import META_CLIENT_CAPABILITIES, META_REVISION, STATELESS_REVISION
from paddock.mcp.rpc.server import McpRpcServer, RpcCaller
from paddock.testing.in_memory_mcp_endpoint import InMemoryMcpEndpoint

CONTEXT = CallContext(tenant="default", caller="somebody")
KEY = "good"


@dataclass
class Gateway:
    """A gRPC server with one MCP server in memory, and the key that it accepts."""

    demo: InMemoryMcpEndpoint = field(default_factory=InMemoryMcpEndpoint)
    others: dict[str, McpEndpoint] = field(default_factory=dict)
    revoked: asyncio.Event = field(default_factory=asyncio.Event)
    contexts: list[CallContext] = field(default_factory=list)
    port: int = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def resolve(self, path: str, context: CallContext) -> McpEndpoint:
        self.contexts.append(context)
        match path:
            case "demo":
                return self.demo
            case "denied":
                raise Forbidden("this key may not use the MCP server denied")
            case name if name in self.others:
                return self.others[name]
        raise NotFound(f"there is no MCP server {path}")

    async def authenticate(self, key: str) -> RpcCaller:
        if key != KEY:
            raise Unauthorized("this API key is not valid")
        return RpcCaller(CallContext(tenant="default", caller="key-1", origin="grpc"), self._until_invalid)

    async def _until_invalid(self) -> str:
        await self.revoked.wait()
        return "this API key was revoked"

    @asynccontextmanager
    async def serve(self, certificate: tuple[bytes, bytes] | None = None) -> AsyncIterator[McpRpcServer]:
        server = McpRpcServer(self.resolve, self.authenticate)
        self.port = await server.listen(f"127.0.0.1:{self.port}", certificate)
        try:
            yield server
        finally:
            await server.close()


def call(tool: str, *, token: str | None = None, **arguments: Any) -> JsonRpcMessage:
    meta = {META_REVISION: STATELESS_REVISION, META_CLIENT_CAPABILITIES: {"elicitation": {}}}
    params = {"name": tool, "arguments": arguments, "_meta": meta | ({"progressToken": token} if token else {})}
    return make_request(7, "tools/call", params)


async def collect(
    endpoint: McpEndpoint, request: JsonRpcMessage, context: CallContext = CONTEXT
) -> list[JsonRpcMessage]:
    async with aclosing(endpoint.exchange(request, context)) as messages:
        return [message async for message in messages]


async def result_text(endpoint: McpEndpoint, request: JsonRpcMessage) -> str:
    return str((await collect(endpoint, request))[-1].result_object()["content"][0]["text"])
