"""The tool worker: the tools an agent can call in a sandbox, served over MCP and plain HTTP."""
