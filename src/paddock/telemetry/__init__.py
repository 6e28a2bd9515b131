"""The server's own log and metrics."""
