"""Paddock runs AI agents in fenced computers."""

__version__ = "0.1.0"
