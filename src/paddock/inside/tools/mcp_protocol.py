"""The tools part of the Model Context Protocol, over streamable HTTP without sessions.

Clients with a handshake (`initialize`, versions up to 2025-11-25) and clients with self-contained
requests (`server/discover`, version 2026-07-28) are both supported; each request gets one JSON reply.
"""

from __future__ import annotations

import json

from .tool_registry import UnknownTool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .tool_registry import ToolRegistry

HANDSHAKE_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
MODERN_VERSIONS = ("2026-07-28",)
MAX_BATCH = 50

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
UNSUPPORTED_VERSION = -32022

_VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
_SERVER_KEY = "io.modelcontextprotocol/serverInfo"
_SERVER = {"name": "paddock", "title": "Paddock sandbox", "version": "1"}
_INSTRUCTIONS = (
    "These tools control one sandboxed computer. Its files are in /workspace, and it may have no network. "
    "Look before you act (take a screenshot or a snapshot if available), and read in each result what has changed."
)
_CAPABILITIES = {"tools": {"listChanged": False}}
_CACHING = {"ttlMs": 0, "cacheScope": "private"}
_COMPLETE = {"resultType": "complete"}


class JsonRpcError(Exception):
    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class McpProtocol:
    """Answers JSON-RPC messages about the tools of one registry."""

    def __init__(self, registry: ToolRegistry) -> None:
        self._registry = registry

    def answer_message(self, body: bytes) -> tuple[int, bytes]:
        """Return the HTTP status and the reply to a posted message; a notification has no reply."""
        try:
            message = json.loads(body)
        except (ValueError, RecursionError) as error:
            return 400, _encode(_error_response(None, JsonRpcError(PARSE_ERROR, f"the request is not JSON: {error}")))
        if isinstance(message, list):
            return self._answer_batch(message)
        reply = self._answer_one(message)
        if reply is None:
            return 202, b""
        return _status(message, reply), _encode(reply)

    def _answer_batch(self, messages: list[Any]) -> tuple[int, bytes]:
        if not 1 <= len(messages) <= MAX_BATCH:
            error = JsonRpcError(INVALID_REQUEST, f"a batch has 1 to {MAX_BATCH} messages")
            return 400, _encode(_error_response(None, error))
        replies = [reply for reply in map(self._answer_one, messages) if reply is not None]
        return (200, _encode(replies)) if replies else (202, b"")

    def _answer_one(self, message: Any) -> dict[str, Any] | None:
        identifier = message.get("id") if isinstance(message, dict) else None
        try:
            if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
                raise JsonRpcError(INVALID_REQUEST, 'a request is an object with "jsonrpc": "2.0", "method" and "id"')
            method = message.get("method")
            if method is None and ("result" in message or "error" in message):
                return None  # A response, though this server sends no requests.
            if not isinstance(method, str):
                raise JsonRpcError(INVALID_REQUEST, '"method" must be text')
            if "id" not in message:
                return None
            if isinstance(identifier, bool) or not isinstance(identifier, (str, int)):
                raise JsonRpcError(INVALID_REQUEST, '"id" must be text or a whole number')
            params = message.get("params")
            if params is not None and not isinstance(params, dict):
                raise JsonRpcError(INVALID_PARAMS, '"params" must be an object')
            return {"jsonrpc": "2.0", "id": identifier, "result": self._dispatch(method, params or {})}
        except JsonRpcError as error:
            return _error_response(identifier if isinstance(identifier, (str, int)) else None, error)

    def _dispatch(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        modern = _modern_version(params)
        if modern is not None and modern not in MODERN_VERSIONS:
            data = {"supported": list(MODERN_VERSIONS), "requested": modern}
            raise JsonRpcError(UNSUPPORTED_VERSION, f"protocol version {modern} is not supported", data)
        if method == "tools/call":
            return {**self._call_tool(params), **(_COMPLETE if modern else {})}
        if method == "tools/list":
            tools = [tool.mcp_document() for tool in self._registry.tools.values()]
            return {"tools": tools, **({**_COMPLETE, **_CACHING} if modern else {})}
        if method == "initialize":
            wanted = params.get("protocolVersion")
            version = wanted if wanted in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[0]
            return {
                "protocolVersion": version,
                "capabilities": _CAPABILITIES,
                "serverInfo": _SERVER,
                "instructions": _INSTRUCTIONS,
            }
        if method == "ping":
            return {}
        if method == "server/discover" and modern:
            versions = {
                "supportedVersions": list(MODERN_VERSIONS),
                "capabilities": _CAPABILITIES,
                "instructions": _INSTRUCTIONS,
            }
            return {**versions, **_COMPLETE, **_CACHING, "_meta": {_SERVER_KEY: _SERVER}}
        raise JsonRpcError(METHOD_NOT_FOUND, f"the method {method!r} is not supported")

    def _call_tool(self, params: dict[str, Any]) -> dict[str, Any]:
        name, arguments = params.get("name"), params.get("arguments")
        if not isinstance(name, str):
            raise JsonRpcError(INVALID_PARAMS, '"name" must be a tool\'s name')
        if arguments is not None and not isinstance(arguments, dict):
            raise JsonRpcError(INVALID_PARAMS, '"arguments" must be an object')
        try:
            return self._registry.call_tool(name, arguments or {}).mcp_document()
        except UnknownTool as error:
            raise JsonRpcError(INVALID_PARAMS, str(error)) from None
        except Exception as error:
            raise JsonRpcError(INTERNAL_ERROR, f"{name}: {type(error).__name__}: {error}") from error


def _modern_version(params: dict[str, Any]) -> str | None:
    meta = params.get("_meta")
    version = meta.get(_VERSION_KEY) if isinstance(meta, dict) else None
    return version if isinstance(version, str) else None


def _status(message: object, reply: dict[str, Any]) -> int:
    """Return the HTTP status: self-contained requests get that of their error, others always 200."""
    code = reply.get("error", {}).get("code")
    if code in (PARSE_ERROR, INVALID_REQUEST, UNSUPPORTED_VERSION):
        return 400
    params = message.get("params") if isinstance(message, dict) else None
    if code is None or not isinstance(params, dict) or _modern_version(params) is None:
        return 200
    return {METHOD_NOT_FOUND: 404, INVALID_PARAMS: 400}.get(code, 200)


def _error_response(identifier: str | int | None, error: JsonRpcError) -> dict[str, Any]:
    error_document: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.data is not None:
        error_document["data"] = error.data
    return {"jsonrpc": "2.0", "id": identifier, "error": error_document}


def _encode(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode("ascii")
