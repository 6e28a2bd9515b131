"""Calls of sandbox tools, from outside and over MCP from inside the sandbox."""
