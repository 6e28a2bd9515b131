"""Paddock runs AI agents in isolated sandboxes."""

__version__ = "0.1.0"
