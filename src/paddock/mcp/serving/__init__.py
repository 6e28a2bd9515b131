"""Edges of the gateway to MCP clients of both eras: HTTP, the sockets of sandboxes, and standard input and output."""
