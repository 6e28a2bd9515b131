"""Tools of MCP servers for agents of chats, which call them without an MCP client of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from paddock.errors import InvalidInput, PaddockError, Unavailable
from paddock.mcp.gateway.access import check_server_access
from paddock.mcp.gateway.gateway import McpGateway
from paddock.mcp.gateway.server_directory import DeclaredServer
from paddock.mcp.protocol import CallContext
from paddock.mcp.protocol.messages import decode_value, make_request
from paddock.mcp.protocol.revisions import (
    INPUT_REQUIRED,
    META_CLIENT_CAPABILITIES,
    META_CLIENT_INFO,
    META_REVISION,
    PROGRESS_TOKEN,
    RESULT_TYPE,
    STATELESS_REVISION,
)

TOOLS_LIST = "tools/list"
MAX_CHAT_TOOLS = 1000
INPUT_MESSAGE = (
    "The tool asks for input of a person, which chats cannot pass on. Nothing more was done; ask the user, and pass "
    "the answer as an argument if the tool has one for it."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTool:
    """A tool of an MCP server, as agents see it."""

    name: str
    """`server_tool`."""
    server: str
    tool: str
    """The name under which its server offers it."""
    description: str
    input_schema: Mapping[str, Any]
    read_only: bool
    """Whether the tool says that it changes nothing; part of its approved version."""


class ChatTools:
    """Lists and calls tools of the servers that a chat may use."""

    def __init__(self, gateway: McpGateway, list_timeout: float) -> None:
        self._gateway = gateway
        self._list_timeout = list_timeout

    def servers(self, names: Collection[str] | None, context: CallContext) -> list[DeclaredServer]:
        """Return the usable servers of some names; None stands for all."""
        usable = self._gateway.usable_servers(context)
        return [each for each in usable if names is None or each.name in names]

    def has_programs(self, names: Collection[str] | None, context: CallContext) -> bool:
        """Return whether one of the servers is a program that needs a sandbox."""
        servers = self._gateway.directory.servers_of(context)
        return any(each.is_local for name, each in servers.items() if names is None or name in names)

    def check_names(self, names: Collection[str], context: CallContext) -> None:
        """Raise `InvalidInput` for names of unknown servers."""
        self._gateway.directory.check_names(names, context)

    async def list_tools(self, names: Collection[str] | None, context: CallContext) -> Sequence[ChatTool]:
        """Return the tools of all usable servers, sorted by name. A server that fails or is slow has its last tools."""
        connections = [
            (declared, self._gateway.connection(declared, context)) for declared in self.servers(names, context)
        ]
        lists = await asyncio.gather(
            *(each.lists.get(TOOLS_LIST, context, self._list_timeout) for _, each in connections)
        )
        found: list[ChatTool] = []
        for (declared, connection), listed in zip(connections, lists, strict=True):
            renamed = listed.renamed_items(connection.names, connection.names.tool_name)
            for item in renamed.items:
                definition = decode_value(item.raw)
                schema = definition.get("inputSchema")
                annotations = definition.get("annotations")
                found.append(
                    ChatTool(
                        name=item.name,
                        server=declared.name,
                        tool=renamed.former_names[item.name],
                        description=_clean_text(definition.get("description")),
                        input_schema=schema if isinstance(schema, dict) else {"type": "object"},
                        read_only=isinstance(annotations, dict) and annotations.get("readOnlyHint") is True,
                    )
                )
        return sorted(found, key=lambda tool: tool.name)[:MAX_CHAT_TOOLS]

    async def call_tool(
        self,
        server: str,
        tool: str,
        arguments: Mapping[str, Any],
        context: CallContext,
        on_progress: Callable[[str], None],
    ) -> Mapping[str, Any]:
        """Return the result as in the protocol. Raises `PaddockError`."""
        declared = self._gateway.directory.find(server, context)
        check_server_access(declared, context)
        endpoint = self._gateway.connection(declared, context).endpoint
        meta = {
            META_REVISION: STATELESS_REVISION,
            META_CLIENT_INFO: {"name": "paddock-chat", "version": "1"},
            # No elicitation, sampling or roots: servers that need them say so instead of waiting.
            META_CLIENT_CAPABILITIES: {},
            PROGRESS_TOKEN: "chat",
        }
        request = make_request(1, "tools/call", {"name": tool, "arguments": dict(arguments), "_meta": meta})
        async with aclosing(endpoint.exchange(request, context)) as messages:
            async for message in messages:
                if not message.is_response:
                    if message.method == "notifications/progress" and (text := _progress_text(message.params_object())):
                        on_progress(text)
                    continue
                if error := message.error_object():
                    raise _ServerError(_clean_text(error.get("message")) or "the server answered with an error")
                try:
                    result = message.result_object()
                except InvalidInput as problem:
                    raise Unavailable(f"the answer of {server} cannot be read: {problem.message}") from None
                if result.get(RESULT_TYPE) == INPUT_REQUIRED:
                    raise _ServerError(INPUT_MESSAGE)
                return result
        raise Unavailable(f"the MCP server {server} ended without a response")


class _ServerError(PaddockError):
    """The MCP server answered with an error."""

    code = "MCP_SERVER_ERROR"


def result_parts(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the content of a result with text in place of what agents cannot see: links, resources and sounds."""
    content = result.get("content")
    parts: list[Mapping[str, Any]] = []
    for part in content if isinstance(content, list) else ():
        if not isinstance(part, Mapping):
            continue
        kind, resource = part.get("type"), part.get("resource")
        if kind == "resource" and isinstance(resource, Mapping):
            if isinstance(resource.get("text"), str):
                parts.append({"type": "text", "text": f"[resource {resource.get('uri')}]\n{resource['text']}"})
            elif str(resource.get("mimeType", "")).startswith("image/"):
                image = {"data": resource.get("blob"), "mimeType": resource.get("mimeType")}
                parts.append({"type": "image", **image})
            else:
                parts.append({"type": "text", "text": f"[resource {resource.get('uri')}, which is not text]"})
        elif kind == "resource_link":
            description = f": {part['description']}" if isinstance(part.get("description"), str) else ""
            parts.append({"type": "text", "text": f"[resource {part.get('uri')}{description}]"})
        elif kind in ("text", "image"):
            parts.append(part)
        else:
            parts.append({"type": "text", "text": f"[content of the type {str(kind)[:50]}, which is not shown]"})
    return parts


def _progress_text(params: Mapping[str, Any]) -> str:
    message, progress, total = params.get("message"), params.get("progress"), params.get("total")
    steps = f"{progress:g}" if isinstance(progress, (int, float)) and not isinstance(progress, bool) else ""
    if steps and isinstance(total, (int, float)) and not isinstance(total, bool):
        steps += f"/{total:g}"
    text = " ".join(part for part in (steps, _clean_text(message)[:500] if isinstance(message, str) else "") if part)
    return f"{text}\n" if text else ""


def _clean_text(value: object) -> str:
    return value.encode(errors="replace").decode() if isinstance(value, str) else ""
