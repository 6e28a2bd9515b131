"""A server of revision 2025-11-25 with sessions; tests answer its calls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from tests.integration.mcp.upstreams.scripted_server import (
    ScriptedServer,
    json_error,
    json_result,
    open_stream,
    send_event,
)

CAPABILITIES = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "logging": {},
}

CallHandler = Callable[["LegacyCall"], Awaitable[None]]


class LegacyCall:
    """A `tools/call` under way, on its event stream."""

    def __init__(self, server: LegacyServer, session: str, message: Any, stream: web.StreamResponse) -> None:
        self.server = server
        self.session = session
        self.message = message
        self._stream = stream

    async def send(self, message: Any) -> None:
        await send_event(self._stream, {"jsonrpc": "2.0"} | message)

    async def ask(self, method: str, params: Any = None) -> Any:
        """Send a request to the client, and wait for its response."""
        request_id = f"server-{len(self.server.answers)}"
        answer = self.server.answers[request_id] = asyncio.get_running_loop().create_future()
        await self.send({"id": request_id, "method": method, "params": params or {}})
        return await answer

    async def finish(self, text: str) -> None:
        await self.send({"id": self.message["id"], "result": {"content": [{"type": "text", "text": text}]}})


class LegacyServer:
    """Keeps sessions; `on_call` answers calls of tools."""

    def __init__(self, scripted: ScriptedServer) -> None:
        scripted.discover = None
        scripted.answer = self._answer
        self.sessions: dict[str, Any] = {}
        """Parameters of `initialize` by session."""
        self.opened = 0
        self.ended: list[str] = []
        self.received: list[tuple[str, Any]] = []
        """Session and content of each message."""
        self.answers: dict[str, asyncio.Future[Any]] = {}
        self.notifications: asyncio.Queue[Any] = asyncio.Queue()
        """Sent on the next GET stream."""
        self.arrived = asyncio.Condition()
        self.on_call: CallHandler | None = None
        self.listening = asyncio.Event()
        self.last_event_ids: list[str | None] = []

    def methods(self) -> list[str]:
        return [message.get("method", "response") for _, message in self.received]

    async def wait_for(self, method: str) -> Any:
        """Wait for a message with a method, and return it."""
        async with asyncio.timeout(10), self.arrived:
            await self.arrived.wait_for(lambda: method in self.methods())
        return next(message for _, message in self.received if message.get("method") == method)

    async def _answer(self, request: web.Request, message: Any) -> web.StreamResponse:
        session = request.headers.get("Mcp-Session-Id", "")
        if message is not None and message.get("method") == "initialize":
            self.opened += 1
            session = f"session-{self.opened}"
            self.sessions[session] = message["params"]
            result = {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "instructions": "Be kind.",
                      "serverInfo": {"name": "old", "version": "1"}}  # fmt: skip
            response = json_result(message, result)
            response.headers["Mcp-Session-Id"] = session
            return response
        if not session:
            return json_error(message, -32000)
        if session not in self.sessions:
            return web.Response(status=404)
        if request.method == "DELETE":
            del self.sessions[session]
            self.ended.append(session)
            return web.Response()
        if request.method == "GET":
            return await self._listen(request)
        async with self.arrived:
            self.received.append((session, message))
            self.arrived.notify_all()
        if "method" not in message:
            if answer := self.answers.get(message["id"]):
                answer.set_result(message["result"] if "result" in message else message["error"])
            return web.Response(status=202)
        if "id" not in message:
            return web.Response(status=202)
        if message["method"] == "tools/call":
            assert self.on_call is not None
            stream = await open_stream(request)
            await self.on_call(LegacyCall(self, session, message, stream))
            return stream
        if message["method"] == "resources/read":
            return json_error(message, -32002, status=200, data={"uri": "a"})
        if message["method"] == "resources/subscribe" and message["params"]["uri"] == "bad:":
            return json_error(message, -32602, status=200)
        return json_result(
            message, {"tools": [{"name": "a", "inputSchema": {}}]} if "list" in message["method"] else {}
        )

    async def _listen(self, request: web.Request) -> web.StreamResponse:
        stream = await open_stream(request)
        self.last_event_ids.append(request.headers.get("Last-Event-ID"))
        self.listening.set()
        while True:
            content = await self.notifications.get()
            if content is None:
                return stream
            await stream.write(b"data: " + json.dumps({"jsonrpc": "2.0"} | content).encode() + b"\n\n")
