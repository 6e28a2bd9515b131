"""A client of the MCP edge in the same process: sends requests, and reads replies and streams."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from paddock.mcp.protocol.endpoint import CallContext, McpEndpoint
from paddock.mcp.protocol.headers import NAMED_METHODS, encode_header_value
from paddock.mcp.serving.http_edge import McpHttpEdge
from paddock.mcp.serving.http_messages import McpHttpReply, McpHttpRequest

ME = CallContext(tenant="me", caller="key-1")
MODERN = "2026-07-28"
BOTH = "application/json, text/event-stream"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "tests", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def stateless_headers(method: str, params: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers that a client of revision 2026-07-28 sends."""
    headers = {"mcp-protocol-version": MODERN, "mcp-method": method, "content-type": "application/json", "accept": BOTH}
    if method in NAMED_METHODS and isinstance(name := params.get(NAMED_METHODS[method]), str):
        headers["mcp-name"] = encode_header_value(name)
    return headers


def stateless_message(method: str, params: Mapping[str, Any], number: int | str = 1, **meta: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": {"_meta": META | meta, **params}}


def document(reply: McpHttpReply) -> Any:
    assert reply.stream is None, "the reply is a stream"
    return json.loads(reply.body) if reply.body else None


@dataclass
class EventReader:
    """Reads the events of a stream."""

    reply: McpHttpReply
    ids: list[str] = field(default_factory=list)
    comments: int = 0

    async def next_event(self) -> Any:
        """Return the next message of the stream, or None at its end."""
        assert self.reply.stream is not None, self.reply.body
        while (chunk := await self.reply.stream.next_chunk()) is not None:
            lines = chunk.decode().splitlines()
            self.ids += [line[4:] for line in lines if line.startswith("id: ")]
            self.comments += sum(line.startswith(":") for line in lines)
            data = [line[6:] for line in lines if line.startswith("data: ")]
            if data and data[0]:
                assert len(data) == 1
                return json.loads(data[0])
        return None

    async def rest(self) -> list[Any]:
        found = []
        while (event := await self.next_event()) is not None:
            found.append(event)
        return found

    async def close(self) -> None:
        assert self.reply.stream is not None
        await self.reply.stream.close()


@dataclass
class EdgeClient:
    """Sends requests to an edge as one caller."""

    edge: McpHttpEdge
    context: CallContext = ME
    path: str = "calc"
    session: str | None = None
    revision: str = "2025-11-25"

    async def send(
        self, method: str, body: bytes | Mapping[str, Any] = b"", headers: Mapping[str, str] | None = None
    ) -> McpHttpReply:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.edge.handle(McpHttpRequest(method, dict(headers or {}), content, self.path, self.context))

    async def ask(self, method: str, params: Mapping[str, Any] | None = None, /, **meta: Any) -> McpHttpReply:
        """Send a request of revision 2026-07-28."""
        sent = params or {}
        return await self.send("POST", stateless_message(method, sent, **meta), stateless_headers(method, sent))

    def session_headers(self, **more: str) -> dict[str, str]:
        headers = {"content-type": "application/json", "accept": BOTH, "mcp-protocol-version": self.revision}
        return headers | ({} if self.session is None else {"mcp-session-id": self.session}) | more

    async def initialize(self, revision: str = "2025-11-25", capabilities: Mapping[str, Any] | None = None) -> Any:
        """Open a session and return the result."""
        info = {"name": "tests", "version": "1"}
        params = {"protocolVersion": revision, "capabilities": dict(capabilities or {}), "clientInfo": info}
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        reply = await self.send("POST", message, {"content-type": "application/json", "accept": BOTH})
        assert reply.status == 200, reply.body
        self.session = reply.headers["mcp-session-id"]
        result = document(reply)["result"]
        self.revision = result["protocolVersion"]
        assert (await self.tell("notifications/initialized")).status == 202
        return result

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, number: int | str = 1
    ) -> McpHttpReply:
        """Send a request of the session."""
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": dict(params or {})}
        return await self.send("POST", message, self.session_headers())

    async def tell(self, method: str, params: Mapping[str, Any] | None = None) -> McpHttpReply:
        message = {"jsonrpc": "2.0", "method": method} | ({} if params is None else {"params": dict(params)})
        return await self.send("POST", message, self.session_headers())

    async def reply_to(self, number: Any, **answer: Any) -> McpHttpReply:
        return await self.send("POST", {"jsonrpc": "2.0", "id": number, **answer}, self.session_headers())

    async def events(self, last_event: str | None = None) -> EventReader:
        more = {} if last_event is None else {"last-event-id": last_event}
        reply = await self.send("GET", headers=self.session_headers(**more))
        assert reply.status == 200, reply.body
        return EventReader(reply)


def edge_of(endpoint: McpEndpoint, **options: Any) -> McpHttpEdge:
    """Return an edge with one endpoint at every path."""
    return McpHttpEdge(lambda path, context: endpoint, **options)
