"""Parameters of tools that are mirrored as HTTP headers, learned from the tool lists of a server."""

from __future__ import annotations

from collections import OrderedDict

import msgspec
import structlog
from msgspec import Raw

from paddock.mcp.protocol import JsonRpcMessage
from paddock.mcp.protocol.headers import MirroredParameters, mirrored_parameters

MAX_TOOLS = 10_000
log = structlog.get_logger()


class _ToolNames(msgspec.Struct):
    tools: list[_ToolName] = msgspec.field(default_factory=list)


class _ToolName(msgspec.Struct):
    name: str


_NAMES = msgspec.json.Decoder(_ToolNames)


class ToolParameters:
    """Mirrored parameters by tool. Schemas of the tools themselves are not kept."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._tools: OrderedDict[str, MirroredParameters] = OrderedDict()

    def of_tool(self, tool: str) -> MirroredParameters | None:
        """Return the mirrored parameters of a tool; None if the tool was in no list yet."""
        return self._tools.get(tool)

    def assume_plain(self, tool: str) -> None:
        """Take a tool that is in no list for one without mirrored parameters; a server that disagrees says so."""
        if tool not in self._tools:
            self._keep(tool, {})

    def learn(self, response: JsonRpcMessage) -> JsonRpcMessage:
        """Learn from a response to `tools/list`; return it without tools that have invalid annotations."""
        result = response.result
        if not isinstance(result, Raw):
            return response
        if b"x-mcp-header" not in bytes(result):
            try:
                names = _NAMES.decode(result).tools
            except (msgspec.MsgspecError, ValueError, RecursionError):
                return response
            for each in names:
                self._keep(each.name, {})
            return response
        return self._learn_annotations(response)

    def _learn_annotations(self, response: JsonRpcMessage) -> JsonRpcMessage:
        content = response.result_object()
        tools = content.get("tools")
        if not isinstance(tools, list):
            return response
        valid = []
        for tool in tools:
            name = tool.get("name") if isinstance(tool, dict) else None
            try:
                if isinstance(name, str):
                    self._keep(name, mirrored_parameters(tool.get("inputSchema")))
                valid.append(tool)
            except ValueError as error:
                log.warning("tool of MCP server left out", server=self._server, tool=str(name)[:100], reason=str(error))
        return response if len(valid) == len(tools) else response.with_result(content | {"tools": valid})

    def _keep(self, tool: str, parameters: MirroredParameters) -> None:
        self._tools[tool] = parameters
        self._tools.move_to_end(tool)
        while len(self._tools) > MAX_TOOLS:
            self._tools.popitem(last=False)
