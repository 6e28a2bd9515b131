"""An MCP server in memory, for tests of everything that stands between clients and servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any

from paddock.errors import PaddockError
from paddock.mcp.protocol import CallContext, JsonRpcMessage
from paddock.mcp.protocol.messages import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    make_error,
    make_notification,
    make_request,
    make_result,
)
from paddock.mcp.protocol.revisions import (
    LISTEN,
    META_CLIENT_CAPABILITIES,
    META_REVISION,
    META_SUBSCRIPTION,
    STATELESS_REVISION,
)

CallHandler = Callable[[str, Mapping[str, Any], CallContext], Awaitable[Mapping[str, Any]]]


def text_result(text: str) -> dict[str, Any]:
    """Return the result of a tool call with one text."""
    return {"resultType": "complete", "content": [{"type": "text", "text": text}], "isError": False}


def stateless_request(
    method: str, params: Mapping[str, Any] | None = None, message_id: int | str = 1
) -> JsonRpcMessage:
    """Return a request in the stateless form."""
    meta = {META_REVISION: STATELESS_REVISION, META_CLIENT_CAPABILITIES: {}}
    given = dict(params or {})
    return make_request(message_id, method, {**given, "_meta": {**meta, **given.get("_meta", {})}})


class InMemoryMcpServer:
    """A server with tools, prompts and resources. Tests change its behaviour while it is used."""

    def __init__(self, tools: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self.tools: dict[str, Mapping[str, Any]] = dict(tools or {})
        """Definitions by name; missing fields are filled in."""
        self.prompts: dict[str, str] = {}
        """Texts by name."""
        self.resources: dict[str, str] = {}
        """Texts by URI."""
        self.templates: list[str] = []
        self.requests: list[tuple[JsonRpcMessage, CallContext]] = []
        self.cancelled = 0
        self.closed = False
        self.failure: PaddockError | None = None
        """Raised by every request."""
        self.gate = asyncio.Event()
        """While it is not set, requests wait."""
        self.gate.set()
        self.ttl_ms: int | None = 60_000
        self.cache_scope: str | None = "public"
        self.page_size: int | None = None
        self.on_call: CallHandler | None = None
        self.progress = 0
        """Progress notifications of each call."""
        self._listeners: set[asyncio.Queue[tuple[str, dict[str, Any]]]] = set()

    def count(self, method: str) -> int:
        """Return how many requests of a method arrived."""
        return sum(request.method == method for request, _ in self.requests)

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    def notify(self, method: str, **params: Any) -> None:
        """Send a notification to all listening clients."""
        for listener in self._listeners:
            listener.put_nowait((method, params))

    async def close(self) -> None:
        self.closed = True

    async def exchange(self, request: JsonRpcMessage, context: CallContext) -> AsyncGenerator[JsonRpcMessage, None]:
        assert isinstance(request.id, (int, str))
        self.requests.append((request, context))
        try:
            await self.gate.wait()
            if self.failure is not None:
                raise self.failure
            if request.method == LISTEN:
                async for message in self._listen(request):
                    yield message
                return
            if request.method == "tools/call":
                for step in range(self.progress):
                    token = request.params_object()["_meta"].get("progressToken")
                    yield make_notification("notifications/progress", {"progressToken": token, "progress": step + 1})
            yield await self._response(request.id, str(request.method), request.params_object(), context)
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled += 1
            raise

    async def _response(
        self, message_id: int | str, method: str, params: Mapping[str, Any], context: CallContext
    ) -> JsonRpcMessage:
        match method:
            case "server/discover":
                capabilities = {"tools": {"listChanged": True}, "prompts": {}, "resources": {}}
                result = {"supportedVersions": [STATELESS_REVISION], "capabilities": capabilities}
                return make_result(message_id, self._cacheable(result))
            case "tools/list":
                tools = [{"inputSchema": {"type": "object"}, **each, "name": name} for name, each in self.tools.items()]
                return make_result(message_id, self._page("tools", tools, params))
            case "tools/call":
                name = params["name"]
                if name not in self.tools:
                    return make_error(message_id, INVALID_PARAMS, f"Unknown tool: {name}")
                if self.on_call is not None:
                    return make_result(message_id, await self.on_call(name, params.get("arguments", {}), context))
                return make_result(message_id, text_result(f"{name} {params.get('arguments', {})}"))
            case "prompts/list":
                return make_result(message_id, self._page("prompts", [{"name": name} for name in self.prompts], params))
            case "prompts/get":
                content = {"type": "text", "text": self.prompts[params["name"]]}
                return make_result(message_id, {"messages": [{"role": "user", "content": content}]})
            case "resources/list":
                resources = [{"uri": uri, "name": uri} for uri in self.resources]
                return make_result(message_id, self._page("resources", resources, params))
            case "resources/templates/list":
                templates = [{"uriTemplate": each, "name": each} for each in self.templates]
                return make_result(message_id, self._page("resourceTemplates", templates, params))
            case "resources/read":
                uri = params["uri"]
                contents = [{"uri": uri, "text": self.resources.get(uri, "made by a template")}]
                return make_result(message_id, self._cacheable({"contents": contents}))
            case "completion/complete":
                return make_result(message_id, {"completion": {"values": [str(params["ref"])]}})
        return make_error(message_id, METHOD_NOT_FOUND, f"Method not found: {method}")

    def _page(self, field: str, items: list[Any], params: Mapping[str, Any]) -> dict[str, Any]:
        start = int(params.get("cursor", 0))
        end = len(items) if self.page_size is None else start + self.page_size
        more = {"nextCursor": str(end)} if end < len(items) else {}
        return self._cacheable({field: items[start:end], **more})

    def _cacheable(self, result: dict[str, Any]) -> dict[str, Any]:
        hints = {"ttlMs": self.ttl_ms, "cacheScope": self.cache_scope}
        return {"resultType": "complete", **result, **{key: value for key, value in hints.items() if value is not None}}

    async def _listen(self, request: JsonRpcMessage) -> AsyncGenerator[JsonRpcMessage, None]:
        meta = {META_SUBSCRIPTION: request.id}
        wanted = request.params_object().get("notifications", {})
        queue: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()
        self._listeners.add(queue)
        try:
            yield make_notification(
                "notifications/subscriptions/acknowledged", {"_meta": meta, "notifications": wanted}
            )
            while True:
                method, params = await queue.get()
                yield make_notification(method, {**params, "_meta": meta})
        finally:
            self._listeners.discard(queue)
