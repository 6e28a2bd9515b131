"""Keeps what must survive a restart."""
