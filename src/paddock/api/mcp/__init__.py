"""The MCP gateway on the main port."""
