"""Applies the tool rules of a server: which tools are listed and can be called, and under which names."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from paddock.errors import Forbidden, InvalidInput
from paddock.mcp.gateway.envelopes import (
    decisive_text,
    encode_raw,
    item_name,
    raw_object,
    replace_field,
    result_fields,
    result_items,
    with_raw_params,
    with_raw_result,
)
from paddock.mcp.gateway.paced_work import paced
from paddock.mcp.gateway.tool_names import matches_pattern, plain_name
from paddock.mcp.protocol import CallContext, JsonRpcMessage, McpEndpoint
from paddock.model.mcp import McpToolRules

TOOLS_LIST = "tools/list"
TOOLS_CALL = "tools/call"


class ToolNames:
    """Translates between the server's names of tools and the offered ones."""

    def __init__(self, rules: McpToolRules) -> None:
        self._rules = rules
        self._own_names = {offered: own for own, offered in rules.rename.items()}
        # Some servers do not tell names apart that differ in case, spaces or characters that look alike.
        self._plain_denied = tuple(map(plain_name, rules.deny))
        self.is_empty = rules == McpToolRules()

    def offered_name(self, own: str) -> str | None:
        """Return the name under which a tool is offered; None if it is not offered."""
        if self._denial(own) is not None:
            return None
        if own in self._rules.rename:
            return self._rules.rename[own]
        # A renamed tool has taken the name.
        return None if own in self._own_names else own

    def own_name(self, offered: str, server: str) -> str:
        """Return the server's name of an offered tool. Raises `Forbidden` with the reason."""
        own = self._own_names.get(offered, offered)
        if offered in self._rules.rename and offered not in self._own_names:
            raise Forbidden(f"The tool {offered[:100]} of {server} is offered as {self._rules.rename[offered]}.")
        if (reason := self._denial(own)) is not None:
            raise Forbidden(f"The tool {offered[:100]} of {server} may not be used: {reason}.")
        return own

    def _denial(self, own: str) -> str | None:
        rules = self._rules
        if rules.deny and (matches_pattern(own, rules.deny) or matches_pattern(plain_name(own), self._plain_denied)):
            return "it is in tools.deny"
        if rules.allow and not matches_pattern(own, rules.allow):
            return "it is not in tools.allow"
        return None


class RuledEndpoint:
    """Applies tool rules on lists and on calls."""

    def __init__(self, inner: McpEndpoint, server: str, names: ToolNames) -> None:
        self._inner = inner
        self._server = server
        self._names = names

    def exchange(self, request: JsonRpcMessage, context: CallContext) -> AsyncGenerator[JsonRpcMessage, None]:
        if request.method == TOOLS_CALL:
            params = raw_object(request.params, "params")
            offered = decisive_text(params, "name")
            params["name"] = encode_raw(self._names.own_name(offered, self._server))
            return self._inner.exchange(with_raw_params(request, params), context)
        if isinstance(request.method, str) and plain_name(request.method) == TOOLS_CALL:
            raise InvalidInput(f"the method is written {TOOLS_CALL}")
        if request.method == TOOLS_LIST and not self._names.is_empty:
            return self._listed(request, context)
        return self._inner.exchange(request, context)

    async def _listed(self, request: JsonRpcMessage, context: CallContext) -> AsyncGenerator[JsonRpcMessage, None]:
        async with aclosing(self._inner.exchange(request, context)) as messages:
            async for message in messages:
                yield await self._with_offered_tools(message) if message.is_response else message

    async def _with_offered_tools(self, response: JsonRpcMessage) -> JsonRpcMessage:
        result = result_fields(response)
        if "tools" not in result:
            return response
        offered = []
        async for tool in paced(result_items(result, "tools")):
            own = item_name(tool)
            name = None if own is None else self._names.offered_name(own)
            if name is not None:
                offered.append(tool if name == own else replace_field(tool, "name", name))
        result["tools"] = encode_raw(offered)
        return with_raw_result(response, result)
