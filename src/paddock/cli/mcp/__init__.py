"""`paddock mcp`: use and manage MCP servers."""
