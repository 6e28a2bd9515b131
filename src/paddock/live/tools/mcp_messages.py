"""Parses and builds the MCP (JSON-RPC) messages that pass between clients and sandboxes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paddock.errors import Conflict, InvalidInput, NotFound, PaddockError, QuotaExceeded, SandboxTimeout, TooLarge
from paddock.sandbox.daemon.untrusted_json import JsonTooCostly, decode_long_json, encode_json

VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
"""Supported MCP revisions. The last has no `initialize`: every request states its own revision."""
PROTOCOL_HEADER = "mcp-protocol-version"
MAX_REQUEST_SIZE = 16 * 2**20
MAX_ERROR_LINE = 500
MAX_ERROR_BODY = 2**16
PARSE_ERROR = -32700
INVALID_REQUEST = -32600
INVALID_PARAMETERS = -32602
REFUSED = -32000
"""From the range reserved for servers."""
UNSUPPORTED_VERSION = -32022
_REVISION = "io.modelcontextprotocol/protocolVersion"
_FORWARDED_STATUSES = frozenset({200, 400, 404})
_STATUSES: Mapping[type[PaddockError], int] = {
    NotFound: 404,
    Conflict: 409,
    TooLarge: 413,
    QuotaExceeded: 429,
    SandboxTimeout: 504,
    InvalidInput: 400,
}


@dataclass(frozen=True)
class McpMessage:
    """A client's request, or without an `id` a notification."""

    method: str
    id: str | int | None
    parameters: Mapping[str, Any]

    @property
    def states_version(self) -> bool:
        """Tell whether the request states its own MCP revision."""
        meta = self.parameters.get("_meta")
        return isinstance(meta, dict) and _REVISION in meta

    @property
    def progress_token(self) -> str | int | None:
        """Token of a tool call with requested progress notifications."""
        meta = self.parameters.get("_meta")
        token = meta.get("progressToken") if isinstance(meta, dict) and self.tool is not None else None
        return token if isinstance(token, (str, int)) and not isinstance(token, bool) else None

    @property
    def arguments(self) -> Mapping[str, Any] | None:
        """Arguments of the tool call; None if they are not an object."""
        arguments = self.parameters.get("arguments") or {}
        return arguments if isinstance(arguments, dict) else None

    @property
    def tool(self) -> str | None:
        """Name of the tool to call; None for other messages."""
        name = self.parameters.get("name")
        return name if self.method == "tools/call" and isinstance(name, str) else None


@dataclass(frozen=True)
class McpResponse:
    """HTTP status and JSON body of a response; the body is empty for notifications."""

    status: int
    body: bytes = b""


class McpError(Exception):
    """Rejects a message; carries the error response."""

    def __init__(self, status: int, code: int, message: str, id: str | int | None = None, data: Any = None) -> None:
        super().__init__(message)
        self.response = mcp_error_response(status, code, message, id, data)


async def parse_mcp_message(body: bytes) -> McpMessage | None:
    """Parse the single message of a body; None for an unexpected response. Raises `McpError`."""
    if len(body) > MAX_REQUEST_SIZE:
        raise McpError(413, INVALID_REQUEST, f"the message is larger than {MAX_REQUEST_SIZE >> 20} MiB")
    try:
        document = await decode_long_json(body)
    except JsonTooCostly as error:
        raise McpError(413, INVALID_REQUEST, f"the message has {error}") from None
    except (ValueError, RecursionError):
        raise McpError(400, PARSE_ERROR, "the body is not JSON") from None
    if isinstance(document, list):
        raise McpError(400, INVALID_REQUEST, "send one message at a time; MCP no longer has batches")
    if not isinstance(document, dict) or document.get("jsonrpc") != "2.0":
        raise McpError(400, INVALID_REQUEST, 'the body is not a JSON-RPC message; it must contain "jsonrpc": "2.0"')
    number, method, parameters = document.get("id"), document.get("method"), document.get("params", {})
    if "method" not in document and ("result" in document or "error" in document):
        return None
    if isinstance(number, bool) or not isinstance(number, (str, int, type(None))):
        raise McpError(400, INVALID_REQUEST, "id: must be a string or a whole number")
    if not isinstance(method, str) or not method:
        raise McpError(400, INVALID_REQUEST, "method: must be the name of a method", number)
    if not isinstance(parameters, dict):
        raise McpError(400, INVALID_PARAMETERS, "params: must be an object", number)
    if "id" in document and number is None:
        raise McpError(400, INVALID_REQUEST, "id: must not be null")
    return McpMessage(method, number, parameters)


def check_mcp_version(requested_version: str | None) -> None:
    """Raise `McpError` for a header that names an unsupported MCP revision."""
    if requested_version is not None and requested_version not in VERSIONS:
        data = {"supported": list(VERSIONS), "requested": requested_version[:100]}
        message = f"MCP revision {requested_version[:100]} is not supported; use one of {', '.join(VERSIONS)}"
        raise McpError(400, UNSUPPORTED_VERSION, message, data=data)


async def parse_mcp_response(body: bytes, request: McpMessage) -> dict[str, Any] | None:
    """Parse a sandbox's response to a request; None if it is invalid."""
    try:
        document = await decode_long_json(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or document.get("jsonrpc") != "2.0" or document.get("id") != request.id:
        return None
    kind = "result" if "result" in document else "error"
    return document if isinstance(document.get(kind), dict) else None


def daemon_error_text(body: bytes) -> str | None:
    """Return the daemon's error message in one line, if the body is one."""
    try:
        message = json.loads(body[:MAX_ERROR_BODY])["message"]
    except (ValueError, RecursionError, LookupError, TypeError):
        return None
    line = message.strip().partition("\n")[0] if isinstance(message, str) else ""
    return f"the sandbox's tools failed: {line[:MAX_ERROR_LINE]}" if line else None


def forwarded_mcp_response(status: int, body: bytes) -> McpResponse:
    """Forward a sandbox's response unchanged; statuses that MCP does not define become 200."""
    return McpResponse(status if status in _FORWARDED_STATUSES else 200, body)


def mcp_result_response(request: McpMessage, document: Mapping[str, Any]) -> McpResponse:
    whole = {"resultType": "complete", **document} if request.states_version else document
    return McpResponse(200, encode_json({"jsonrpc": "2.0", "id": request.id, "result": whole}))


def mcp_error_response(
    status: int, code: int, message: str, id: str | int | None = None, data: Any = None
) -> McpResponse:
    error = {"code": code, "message": message} | ({} if data is None else {"data": data})
    return McpResponse(status, json.dumps({"jsonrpc": "2.0", "id": id, "error": error}).encode())


def mcp_response_for_error(error: PaddockError, id: str | int | None = None) -> McpResponse:
    """Convert a `PaddockError` to an MCP error response."""
    status = next((code for kind, code in _STATUSES.items() if isinstance(error, kind)), 502)
    return mcp_error_response(status, REFUSED, error.message, id)
