"""Sign-in at MCP servers by OAuth 2.1: discovery, registration, tokens, and the sign-ins of users."""
