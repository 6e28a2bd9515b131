"""An MCP endpoint in memory with scripted tools, resources and failures, for tests of code around endpoints."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from paddock.errors import PaddockError
from paddock.mcp.protocol.endpoint import CallContext
from paddock.mcp.protocol.messages import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_CLIENT_CAPABILITY,
    JsonRpcMessage,
    make_error,
    make_notification,
    make_result,
)
from paddock.mcp.protocol.revisions import (
    COMPLETE,
    DISCOVER,
    INPUT_REQUIRED,
    LISTEN,
    META_CLIENT_CAPABILITIES,
    META_LOG_LEVEL,
    META_SERVER_INFO,
    META_SUBSCRIPTION,
    PROGRESS_TOKEN,
    RESULT_TYPE,
    STATELESS_REVISION,
)

LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
ANY_OBJECT: Mapping[str, Any] = {"type": "object"}


@dataclass
class ReceivedRequest:
    """A request that reached the endpoint."""

    message: JsonRpcMessage
    params: Mapping[str, Any]
    context: CallContext

    @property
    def meta(self) -> Mapping[str, Any]:
        meta = self.params.get("_meta")
        return meta if isinstance(meta, dict) else {}


@dataclass
class ToolRun:
    """A tool call under way: what its handler gets."""

    request: ReceivedRequest
    _notifications: asyncio.Queue[JsonRpcMessage]

    @property
    def arguments(self) -> Mapping[str, Any]:
        return self.request.params.get("arguments") or {}

    @property
    def input_responses(self) -> Mapping[str, Any]:
        return self.request.params.get("inputResponses") or {}

    @property
    def request_state(self) -> str | None:
        return self.request.params.get("requestState")

    def progress(self, done: float, total: float | None = None) -> None:
        """Report progress, if the client asked for it."""
        token = self.request.meta.get(PROGRESS_TOKEN)
        if token is not None:
            params = {PROGRESS_TOKEN: token, "progress": done} | ({} if total is None else {"total": total})
            self.notify("notifications/progress", params)

    def log(self, level: str, data: Any) -> None:
        """Send a log message, if the client asked for this level."""
        wanted = self.request.meta.get(META_LOG_LEVEL)
        if wanted in LOG_LEVELS and LOG_LEVELS.index(level) >= LOG_LEVELS.index(wanted):
            self.notify("notifications/message", {"level": level, "data": data})

    def notify(self, method: str, params: Any) -> None:
        self._notifications.put_nowait(make_notification(method, params))


class InputRequired(Exception):
    """Raised by handlers to ask the client for input; it repeats the request with `inputResponses`."""

    def __init__(self, requests: Mapping[str, Any], state: str | None = None) -> None:
        super().__init__("input required")
        self.result = {RESULT_TYPE: INPUT_REQUIRED, "inputRequests": dict(requests)}
        if state is not None:
            self.result["requestState"] = state


class JsonRpcFailure(Exception):
    """Raised by handlers to answer with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.text, self.data = code, message, data


ToolHandler: TypeAlias = Callable[[ToolRun], Awaitable[Any]]
"""Returns a text, or a whole result."""


@dataclass
class _Tool:
    handler: ToolHandler
    definition: dict[str, Any]


@dataclass
class InMemoryMcpEndpoint:
    """A scriptable `McpEndpoint`. Keeps the requests that it received, and the cancelled ones."""

    name: str = "in-memory"
    instructions: str | None = None
    resources: dict[str, str] = field(default_factory=dict)
    """Texts by URI."""
    prompts: dict[str, str] = field(default_factory=dict)
    """Texts by name."""
    failure: PaddockError | None = None
    """Raised for each request except `server/discover`."""
    unavailable: PaddockError | None = None
    """Raised for each request."""
    page_size: int = 1000
    """Tools per page of `tools/list`."""
    received: list[ReceivedRequest] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    """Methods of the requests that were cancelled."""
    under_way: int = 0

    def __post_init__(self) -> None:
        self._tools: dict[str, _Tool] = {}
        self._listeners: dict[int, tuple[Mapping[str, Any], asyncio.Queue[JsonRpcMessage | None]]] = {}
        self._changed = asyncio.Event()
        add_sample_tools(self)

    # Scripting.

    def add_tool(
        self, name: str, handler: ToolHandler, *, schema: Mapping[str, Any] = ANY_OBJECT, **fields: Any
    ) -> None:
        """Add or replace a tool; `fields` are further fields of its definition."""
        definition = {"name": name, "description": f"The tool {name}.", "inputSchema": dict(schema), **fields}
        self._tools[name] = _Tool(handler, definition)
        self.announce("notifications/tools/list_changed")

    def remove_tool(self, name: str) -> None:
        del self._tools[name]
        self.announce("notifications/tools/list_changed")

    def announce(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification to the subscriptions that asked for it."""
        for wanted, queue in self._listeners.values():
            if _is_wanted(method, params or {}, wanted):
                queue.put_nowait(make_notification(method, dict(params or {})))

    def end_subscriptions(self) -> None:
        """End all subscriptions as a server does that stops."""
        for _, queue in self._listeners.values():
            queue.put_nowait(None)

    @property
    def subscriptions(self) -> list[Mapping[str, Any]]:
        """The filters of the subscriptions under way."""
        return [wanted for wanted, _ in self._listeners.values()]

    async def wait_for(self, condition: Callable[[InMemoryMcpEndpoint], object], timeout: float = 10.0) -> None:
        """Wait until a condition on this endpoint holds."""
        async with asyncio.timeout(timeout):
            while not condition(self):
                self._changed.clear()
                await self._changed.wait()

    # The contract.

    async def exchange(self, request: JsonRpcMessage, context: CallContext) -> AsyncGenerator[JsonRpcMessage, None]:
        assert isinstance(request.method, str) and isinstance(request.id, int | str)
        received = ReceivedRequest(request, request.params_object(), context)
        self.received.append(received)
        self.under_way += 1
        self._changed.set()
        has_response = False
        try:
            if self.unavailable is not None:
                raise self.unavailable
            if self.failure is not None and request.method != DISCOVER:
                raise self.failure
            answers = self._listen(received) if request.method == LISTEN else self._answer(received)
            async with aclosing(answers):
                async for message in answers:
                    has_response = message.is_response
                    yield message
        except (asyncio.CancelledError, GeneratorExit):
            if not has_response:
                self.cancelled.append(request.method)
            raise
        finally:
            self.under_way -= 1
            self._changed.set()

    async def _answer(self, received: ReceivedRequest) -> AsyncGenerator[JsonRpcMessage, None]:
        request = received.message
        assert isinstance(request.id, int | str) and isinstance(request.method, str)
        notifications: asyncio.Queue[JsonRpcMessage] = asyncio.Queue()
        async with _owned_task(self._result(received, notifications)) as work:
            while not work.done() or not notifications.empty():
                if notifications.empty():
                    waiting = asyncio.ensure_future(notifications.get())
                    both: set[asyncio.Future[Any]] = {work, waiting}
                    try:
                        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                        if not waiting.done():
                            continue
                        yield waiting.result()
                    finally:
                        waiting.cancel()
                else:
                    yield notifications.get_nowait()
            try:
                result = work.result()
            except InputRequired as needed:
                result = needed.result
            except JsonRpcFailure as failure:
                yield make_error(request.id, failure.code, failure.text, failure.data)
                return
        yield make_result(request.id, {RESULT_TYPE: COMPLETE, **result})

    async def _result(self, received: ReceivedRequest, notifications: asyncio.Queue[JsonRpcMessage]) -> dict[str, Any]:
        params = received.params
        match received.message.method:
            case "server/discover":
                return self._discover_result()
            case "tools/list":
                tools = [tool.definition for tool in self._tools.values()]
                start = int(params.get("cursor") or 0)
                end = start + self.page_size
                more = {"nextCursor": str(end)} if end < len(tools) else {}
                return {"tools": tools[start:end], "ttlMs": 0, "cacheScope": "private", **more}
            case "tools/call":
                tool = self._tools.get(str(params.get("name")))
                if tool is None:
                    raise JsonRpcFailure(INVALID_PARAMS, f"Unknown tool: {params.get('name')}")
                result = await tool.handler(ToolRun(received, notifications))
                return result if isinstance(result, dict) else {"content": [{"type": "text", "text": str(result)}]}
            case "resources/list":
                listed = [{"uri": uri, "name": uri.rpartition("/")[2]} for uri in self.resources]
                return {"resources": listed, "ttlMs": 0, "cacheScope": "private"}
            case "resources/templates/list":
                return {"resourceTemplates": [], "ttlMs": 0, "cacheScope": "private"}
            case "resources/read":
                text = self.resources.get(uri := str(params.get("uri")))
                if text is None:
                    raise JsonRpcFailure(INVALID_PARAMS, f"Resource not found: {uri}", {"uri": uri})
                return {"contents": [{"uri": uri, "text": text}], "ttlMs": 0, "cacheScope": "private"}
            case "prompts/list":
                return {"prompts": [{"name": name} for name in self.prompts], "ttlMs": 0, "cacheScope": "private"}
            case "prompts/get":
                text = self.prompts.get(str(params.get("name")))
                if text is None:
                    raise JsonRpcFailure(INVALID_PARAMS, f"Unknown prompt: {params.get('name')}")
                return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}
            case "completion/complete":
                return {"completion": {"values": sorted(self.prompts), "hasMore": False}}
            case method:
                raise JsonRpcFailure(METHOD_NOT_FOUND, f"Method not found: {method}")

    def _discover_result(self) -> dict[str, Any]:
        capabilities = {
            "tools": {"listChanged": True},
            "resources": {"listChanged": True, "subscribe": True},
            "prompts": {"listChanged": True},
            "logging": {},
            "completions": {},
        }
        return {
            "supportedVersions": [STATELESS_REVISION],
            "capabilities": capabilities,
            "_meta": {META_SERVER_INFO: {"name": self.name, "version": "1"}},
            "ttlMs": 0,
            "cacheScope": "private",
            **({} if self.instructions is None else {"instructions": self.instructions}),
        }

    async def _listen(self, received: ReceivedRequest) -> AsyncGenerator[JsonRpcMessage, None]:
        number = received.message.id
        assert isinstance(number, int | str)
        wanted = received.params.get("notifications") or {}
        queue: asyncio.Queue[JsonRpcMessage | None] = asyncio.Queue()
        tag = {META_SUBSCRIPTION: number}
        self._listeners[id(queue)] = (wanted, queue)
        self._changed.set()
        try:
            yield make_notification("notifications/subscriptions/acknowledged", {"_meta": tag, "notifications": wanted})
            while (message := await queue.get()) is not None:
                yield message.with_params({**message.params_object(), "_meta": tag})
            yield make_result(number, {RESULT_TYPE: COMPLETE, "_meta": tag})
        finally:
            del self._listeners[id(queue)]
            self._changed.set()


def add_sample_tools(endpoint: InMemoryMcpEndpoint) -> None:
    """Add `echo`, `count` (progress), `talk` (log), `ask` (input), `sleep` (never ends) and `fail`."""

    async def echo(run: ToolRun) -> str:
        return str(run.arguments.get("text", ""))

    async def count(run: ToolRun) -> str:
        total = int(run.arguments.get("to", 3))
        for number in range(1, total + 1):
            run.progress(number, total)
            await asyncio.sleep(0)
        return "done"

    async def talk(run: ToolRun) -> str:
        for level in LOG_LEVELS:
            run.log(level, f"a message of level {level}")
        return "said"

    async def ask(run: ToolRun) -> str:
        answer = run.input_responses.get("name")
        if answer is None:
            require_capability(run, "elicitation")
            schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
            params = {"mode": "form", "message": "Your name?", "requestedSchema": schema}
            raise InputRequired({"name": {"method": "elicitation/create", "params": params}}, state="asked once")
        if run.request_state != "asked once":
            raise JsonRpcFailure(INVALID_PARAMS, "the request state was changed")
        return f"{answer.get('action')} {(answer.get('content') or {}).get('name')}"

    async def sleep(run: ToolRun) -> str:
        run.progress(0)
        await asyncio.Event().wait()
        return "never"

    async def fail(run: ToolRun) -> dict[str, Any]:
        return {"isError": True, "content": [{"type": "text", "text": str(run.arguments.get("text", "it failed"))}]}

    for name, handler in {"echo": echo, "count": count, "talk": talk, "ask": ask, "sleep": sleep, "fail": fail}.items():
        endpoint.add_tool(name, handler)


def require_capability(run: ToolRun, name: str) -> None:
    """Answer with an error unless the client declared a capability."""
    if name not in (run.request.meta.get(META_CLIENT_CAPABILITIES) or {}):
        needed: dict[str, Any] = {"requiredCapabilities": {name: {}}}
        raise JsonRpcFailure(MISSING_CLIENT_CAPABILITY, f"Missing required client capability: {name}", needed)


@asynccontextmanager
async def _owned_task(work: Awaitable[dict[str, Any]]) -> AsyncIterator[asyncio.Future[dict[str, Any]]]:
    """Run work beside the context; cancel it at the end."""
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _is_wanted(method: str, params: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    match method:
        case "notifications/tools/list_changed":
            return bool(wanted.get("toolsListChanged"))
        case "notifications/prompts/list_changed":
            return bool(wanted.get("promptsListChanged"))
        case "notifications/resources/list_changed":
            return bool(wanted.get("resourcesListChanged"))
        case _:
            return params.get("uri") in (wanted.get("resourceSubscriptions") or ())
