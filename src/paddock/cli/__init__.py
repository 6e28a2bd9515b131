"""The `paddock` command."""
