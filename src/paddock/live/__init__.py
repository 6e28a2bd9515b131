"""Desktops, terminals and screens as they are now, and who holds the input."""
