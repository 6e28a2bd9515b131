"""Sandboxes: the backend contract, its implementations, the daemon client and images."""
