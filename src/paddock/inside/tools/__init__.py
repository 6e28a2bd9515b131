"""The tools of a box: what an agent can do in it, offered over MCP and as plain HTTP."""
