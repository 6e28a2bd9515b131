"""JSON-RPC messages of MCP, its revisions, and the contract between clients, gateway and servers. No I/O."""

from paddock.mcp.protocol.endpoint import CallContext, McpEndpoint
from paddock.mcp.protocol.messages import JsonRpcMessage, decode_message, encode_message

__all__ = ["CallContext", "JsonRpcMessage", "McpEndpoint", "decode_message", "encode_message"]
