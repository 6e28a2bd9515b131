"""Wires all packages into a server, and serves it. Nothing else builds these objects."""
