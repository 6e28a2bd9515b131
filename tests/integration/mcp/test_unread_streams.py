"""Clients that do not read their stream stop the call behind it, over real connections."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncGenerator
from contextlib import ExitStack

import uvicorn

from paddock.api.http.allowed_origins import AllowedOrigins
from paddock.api.mcp.mcp_app import McpApp
from paddock.config.schema import Config
from paddock.llm.wire.memory_budget import MemoryBudget, TenantMemoryBudgets
from paddock.mcp.protocol.endpoint import CallContext
from paddock.mcp.protocol.messages import JsonRpcMessage, make_notification
from paddock.model.keys import Principal, Scope
from tests.support.mcp_edge_client import edge_of, stateless_headers, stateless_message
from tests.support.server import eventually

from .reference_server import in_thread

CALL = {"name": "flood"}
MESSAGE_SIZE = 10_000
MAX_BUFFERED = 20 * 2**20
"""More than the buffers of the gateway and of both sockets hold."""


class FloodingEndpoint:
    """Sends notifications without end."""

    def __init__(self) -> None:
        self.sent = 0
        self.ended = False

    async def exchange(self, request: JsonRpcMessage, context: CallContext) -> AsyncGenerator[JsonRpcMessage, None]:
        try:
            while True:
                self.sent += 1
                yield make_notification("notifications/message", {"level": "info", "data": "x" * MESSAGE_SIZE})
        finally:
            self.ended = True


class AnyKey:
    """Lets every request pass."""

    async def authenticate(self, scope: object) -> Principal:
        return Principal(tenant="default", key_id="key-1", scopes=frozenset([Scope.MCP_USE]))


async def always_valid(principal: Principal) -> str:
    await asyncio.Event().wait()
    return ""


def test_unread_stream_stops_its_call() -> None:
    endpoint = FloodingEndpoint()

    async def serve(port: int, stop: asyncio.Event) -> None:
        memory = TenantMemoryBudgets(MemoryBudget(2**30))
        edge = edge_of(endpoint)
        app = McpApp(edge, AnyKey(), AllowedOrigins(Config().server), memory, None, always_valid)  # type: ignore[arg-type]
        options = uvicorn.Config(
            app.serve, interface="asgi3", port=port, log_config=None, ws="none", lifespan="off", proxy_headers=False
        )
        server = uvicorn.Server(options)
        task = asyncio.create_task(server.serve())
        await stop.wait()
        server.should_exit = True
        await task
        await edge.close()

    def is_stopped() -> bool:
        before = endpoint.sent
        time.sleep(0.2)
        return before == endpoint.sent > 0

    body = json.dumps(stateless_message("tools/call", CALL)).encode()
    headers = stateless_headers("tools/call", CALL) | {"host": "127.0.0.1", "content-length": str(len(body))}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with ExitStack() as held:
        port = held.enter_context(in_thread(serve))
        client = held.enter_context(socket.create_connection(("127.0.0.1", port)))
        client.sendall(f"POST /mcp/calc HTTP/1.1\r\n{head}\r\n".encode() + body)
        eventually(is_stopped)
        assert endpoint.sent * MESSAGE_SIZE < MAX_BUFFERED and not endpoint.ended
        stopped_at = endpoint.sent
        assert client.recv(1000).startswith(b"HTTP/1.1 200")
        while endpoint.sent == stopped_at:
            client.recv(65536)  # Reading lets the call continue.
        client.close()
        eventually(lambda: endpoint.ended)
