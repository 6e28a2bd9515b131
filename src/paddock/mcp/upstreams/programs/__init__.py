"""Servers that are programs in sandboxes, on their standard streams."""
