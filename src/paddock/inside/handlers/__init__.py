"""Request handlers of the daemon's HTTP API, one module per family of routes."""
