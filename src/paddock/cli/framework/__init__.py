"""Shared parts of all commands: registration, the command context, option parsing and shell completion."""
