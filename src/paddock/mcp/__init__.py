"""Proxies requests of sandboxes to the MCP servers that their tasks declare."""
