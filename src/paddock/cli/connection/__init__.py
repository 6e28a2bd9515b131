"""Access to the server or the data directory: finds or starts the server, and sends requests."""
