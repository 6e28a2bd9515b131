"""Tools for Windows programs on Wine."""
