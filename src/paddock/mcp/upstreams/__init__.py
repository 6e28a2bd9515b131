"""Connections of the gateway to MCP servers, of any revision and transport, in the stateless form."""
