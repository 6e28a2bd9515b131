"""The HTTP API: translates requests into calls of the packages below."""
