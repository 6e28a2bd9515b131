"""The append-only log of everything that happens."""
