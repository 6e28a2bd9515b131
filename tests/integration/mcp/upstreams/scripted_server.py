"""An HTTP server with answers that a test decides, and a client for connections to it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from paddock.config.outgoing_proxy import OutgoingProxies
from paddock.mcp.address_policy import McpAddressPolicy
from paddock.mcp.http_client import McpHttpClient
from paddock.mcp.protocol import CallContext, JsonRpcMessage
from paddock.mcp.protocol.messages import make_request
from paddock.mcp.upstreams.base import Upstream, UpstreamDependencies
from paddock.mcp.upstreams.factory import open_upstream
from paddock.model.mcp import McpServer

ADA = CallContext(tenant="default", caller="ada")
BOB = CallContext(tenant="default", caller="bob")
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "tests", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@dataclass
class ReceivedRequest:
    method: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Answer = Callable[[web.Request, Any], Awaitable[web.StreamResponse]]


@dataclass
class ScriptedServer:
    """Answers `server/discover` as a stateless server, and everything else by `answer`."""

    url: str = ""
    received: list[ReceivedRequest] = field(default_factory=list)
    answer: Answer | None = None
    discover: dict[str, Any] | None = field(default_factory=lambda: discovered())

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.received.append(ReceivedRequest(request.method, dict(request.headers), body))
        message = json.loads(body) if body else None
        if self.discover is not None and message and message.get("method") == "server/discover":
            return json_result(message, self.discover)
        assert self.answer is not None
        return await self.answer(request, message)

    def methods(self) -> list[str]:
        """Methods of the received messages, without discovery."""
        methods = [each.json.get("method", "response") for each in self.received if each.body]
        return [each for each in methods if each != "server/discover"]


def discovered(**changes: Any) -> dict[str, Any]:
    return {
        "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
        "ttlMs": 60_000, "cacheScope": "public",
    } | changes  # fmt: skip


def json_result(message: Any, result: Any, status: int = 200) -> web.Response:
    return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result}, status=status)


def json_error(message: Any, code: int, status: int = 400, data: Any = None) -> web.Response:
    error = {"code": code, "message": "refused", "data": data}
    return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error}, status=status)


async def open_stream(request: web.Request, headers: dict[str, str] | None = None) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"} | (headers or {}))
    await response.prepare(request)
    return response


async def send_event(response: web.StreamResponse, message: Any) -> None:
    await response.write(b"event: message\r\ndata: " + json.dumps(message).encode() + b"\r\n\r\n")


def text_result(text: str) -> dict[str, Any]:
    return {"resultType": "complete", "content": [{"type": "text", "text": text}]}


@asynccontextmanager
async def scripted_server() -> AsyncIterator[ScriptedServer]:
    server = ScriptedServer()
    app = web.Application(client_max_size=2**28)
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
        yield server
    finally:
        await runner.cleanup()


@asynccontextmanager
async def connected(url: str, dependencies: dict[str, Any] | None = None, **declared: Any) -> AsyncIterator[Upstream]:
    """Open a connection to the server at an address."""
    client = McpHttpClient(McpAddressPolicy(["127.0.0.1"]), OutgoingProxies())
    server = McpServer.model_validate({"name": "tools", "url": url} | declared)
    upstream = open_upstream(server, UpstreamDependencies(client=client, **(dependencies or {})))
    try:
        yield upstream
    finally:
        await upstream.close()
        await client.close()


def call_tool(name: str, arguments: Any = None, message_id: int | str = 7, **params: Any) -> JsonRpcMessage:
    meta = META | params.pop("_meta", {})
    return make_request(message_id, "tools/call", {"name": name, "arguments": arguments or {}, "_meta": meta} | params)


def ask(method: str, message_id: int | str = 7, **params: Any) -> JsonRpcMessage:
    return make_request(message_id, method, {"_meta": META | params.pop("_meta", {})} | params)


async def messages_of(upstream: Upstream, request: JsonRpcMessage, context: CallContext = ADA) -> list[JsonRpcMessage]:
    """Return all messages of an exchange; the last is the response."""
    async with aclosing(upstream.exchange(request, context)) as messages:
        return [each async for each in messages]


async def result_of(upstream: Upstream, request: JsonRpcMessage, context: CallContext = ADA) -> Any:
    """Return the result of an exchange, or its error."""
    response = (await messages_of(upstream, request, context))[-1]
    assert response.id == request.id
    return response.result_object() or response.error_object()
