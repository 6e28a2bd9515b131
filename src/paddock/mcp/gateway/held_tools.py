"""Withholds tools that are not approved, from lists and from calls."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import aclosing

from msgspec import Raw

from paddock.errors import Forbidden
from paddock.mcp.gateway.envelopes import (
    decisive_text,
    encode_raw,
    raw_object,
    result_fields,
    result_items,
    with_raw_result,
)
from paddock.mcp.gateway.paced_work import paced
from paddock.mcp.gateway.tool_rules import TOOLS_CALL, TOOLS_LIST
from paddock.mcp.gateway.tool_versions import ToolVersions, shown_definition, tool_digest
from paddock.mcp.protocol import CallContext, JsonRpcMessage, McpEndpoint
from paddock.mcp.protocol.messages import decode_value

MAX_KNOWN_DIGESTS = 20_000
MAX_NAME_LENGTH = 1000


class HeldToolsEndpoint:
    """Compares every listed tool with its approved versions. Sees the server's own names."""

    def __init__(self, inner: McpEndpoint, server: str, versions: ToolVersions) -> None:
        self._inner = inner
        self._server = server
        self._versions = versions
        self._held: dict[str, str] = {}
        """Digests of the tools that this connection's last lists had and that were held."""
        self._passed: set[str] = set()
        """Tools that a list of this connection had and that were not held."""
        self._digests: OrderedDict[bytes, tuple[str, str]] = OrderedDict()
        """Name and digest of tools, by the hash of their bytes."""

    def exchange(self, request: JsonRpcMessage, context: CallContext) -> AsyncGenerator[JsonRpcMessage, None]:
        if request.method == TOOLS_CALL:
            self._check_call(decisive_text(raw_object(request.params, "params"), "name"))
        elif request.method == TOOLS_LIST:
            return self._listed(request, context)
        return self._inner.exchange(request, context)

    def _check_call(self, tool: str) -> None:
        if (digest := self._held.get(tool)) is not None:
            reason = self._versions.refusal(tool, digest, dict)
        elif tool not in self._passed:
            # A new connection has not read a list yet, so what is known from earlier ones counts.
            reason = self._versions.newest_refusal(tool)
        else:
            reason = None
        if reason is None and self._versions.requires_approval_of_new and not self._versions.is_known(tool):
            reason = "it is new and not yet approved"
        if reason is not None:
            raise Forbidden(
                f"The tool {tool[:100]} of {self._server} is held: {reason}. Look at it with "
                f"`paddock mcp approve {self._server}`."
            )

    async def _listed(self, request: JsonRpcMessage, context: CallContext) -> AsyncGenerator[JsonRpcMessage, None]:
        async with aclosing(self._inner.exchange(request, context)) as messages:
            async for message in messages:
                yield await self._without_held(message) if message.is_response else message

    async def _without_held(self, response: JsonRpcMessage) -> JsonRpcMessage:
        result = result_fields(response)
        if "tools" not in result:
            return response
        tools = result_items(result, "tools")
        passed = [tool async for tool in paced(tools) if self._passes(tool)]
        if len(passed) == len(tools):
            return response
        result["tools"] = encode_raw(passed)
        return with_raw_result(response, result)

    def _passes(self, tool: Raw) -> bool:
        content = hashlib.sha256(tool).digest()
        known = self._digests.get(content)
        if known is None:
            definition = decode_value(tool)
            name = definition.get("name") if isinstance(definition, dict) else None
            if not isinstance(name, str) or len(name) > MAX_NAME_LENGTH:
                return False  # No caller could use it.
            known = self._digests[content] = (name, tool_digest(definition))
            if len(self._digests) > MAX_KNOWN_DIGESTS:
                self._digests.popitem(last=False)
        name, digest = known
        if self._versions.refusal(name, digest, lambda: shown_definition(decode_value(tool))) is None:
            self._held.pop(name, None)
            self._passed.add(name)
            return True
        self._passed.discard(name)
        self._held[name] = digest
        if len(self._held) > MAX_KNOWN_DIGESTS:
            self._held.pop(next(iter(self._held)))
        return False
