"""Knows which parameters of which tools clients must repeat as headers, by the lists that servers give them."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeAlias

import structlog

from paddock.errors import PaddockError
from paddock.mcp.protocol.endpoint import CallContext, McpEndpoint
from paddock.mcp.protocol.headers import ParameterPath, mirrored_parameters
from paddock.mcp.protocol.messages import JsonRpcMessage, make_request
from paddock.mcp.protocol.revisions import META_CLIENT_CAPABILITIES, META_REVISION, STATELESS_REVISION

MAX_KNOWN_LISTS = 1000
MAX_AGE = 300.0
FAILED_LIST_AGE = 10.0
MAX_PAGES = 100
LIST_TIMEOUT = 10.0
ListKey: TypeAlias = tuple[str, str, str, str | None]
"""Path, tenant, caller and sandbox."""
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _KnownList:
    tools: Mapping[str, Mapping[ParameterPath, str]]
    """Only tools with mirrored parameters."""
    expires: float


class ToolHeaders:
    """Mirrored parameters of tools, by caller. Unknown lists are read once, and again when they are old."""

    def __init__(self) -> None:
        self._known: OrderedDict[ListKey, _KnownList] = OrderedDict()

    async def of_tool(
        self, path: str, endpoint: McpEndpoint, context: CallContext, tool: str
    ) -> Mapping[ParameterPath, str]:
        """Return the mirrored parameters of a tool; none if its server cannot be asked: servers check them too."""
        key = _key(path, context)
        known = self._known.get(key)
        if known is None or known.expires < time.monotonic():
            tools = await _read_tools(endpoint, context)
            known = self._remember(key, tools or {}, FAILED_LIST_AGE if tools is None else MAX_AGE)
        else:
            self._known.move_to_end(key)
        return known.tools.get(tool, {})

    def on_list(self, path: str, context: CallContext, response: JsonRpcMessage) -> None:
        """Notice a list that a client got, so that the next call is checked against it."""
        result = bytes(response.result) if response.result else b""
        key = _key(path, context)
        if b"x-mcp-header" in result:
            self._known.pop(key, None)
        elif b'"nextCursor"' not in result and b'"tools"' in result and key in self._known:
            self._remember(key, {}, MAX_AGE)

    def _remember(self, key: ListKey, tools: Mapping[str, Mapping[ParameterPath, str]], age: float) -> _KnownList:
        known = self._known[key] = _KnownList(tools, time.monotonic() + age)
        self._known.move_to_end(key)
        while len(self._known) > MAX_KNOWN_LISTS:
            self._known.popitem(last=False)
        return known


def _key(path: str, context: CallContext) -> ListKey:
    return path, str(context.tenant), context.caller, context.sandbox


async def _read_tools(endpoint: McpEndpoint, context: CallContext) -> dict[str, Mapping[ParameterPath, str]] | None:
    """Return the mirrored parameters of all tools; None if the server cannot be asked."""
    found: dict[str, Mapping[ParameterPath, str]] = {}
    cursor: str | None = None
    try:
        async with asyncio.timeout(LIST_TIMEOUT):
            for _ in range(MAX_PAGES):
                meta = {META_REVISION: STATELESS_REVISION, META_CLIENT_CAPABILITIES: {}}
                params = {"_meta": meta} | ({} if cursor is None else {"cursor": cursor})
                result = await _ask(endpoint, make_request("tool-headers", "tools/list", params), context)
                tools = result.get("tools")
                for tool in tools if isinstance(tools, list) else ():
                    if isinstance(tool, dict) and isinstance(name := tool.get("name"), str):
                        _add_tool(found, name, tool.get("inputSchema"))
                following = result.get("nextCursor")
                if not isinstance(following, str) or following == cursor:
                    break
                cursor = following
    except (PaddockError, TimeoutError) as error:
        log.info("cannot read tools to check headers", error=str(error) or type(error).__name__)
        return None
    return found


def _add_tool(found: dict[str, Mapping[ParameterPath, str]], name: str, schema: Any) -> None:
    try:
        if mirrored := mirrored_parameters(schema):
            found[name] = mirrored
    except ValueError:
        pass  # Clients leave such tools out, so that there are no headers to check.


async def _ask(endpoint: McpEndpoint, request: JsonRpcMessage, context: CallContext) -> dict[str, Any]:
    result: dict[str, Any] = {}
    async with aclosing(endpoint.exchange(request, context)) as messages:
        async for message in messages:
            if message.is_response:
                result = message.result_object()
    return result
