"""Decides which MCP server a request reaches, and under which rules, names, limits and records."""
