"""Commands on sandboxes: `paddock sandbox`, `paddock tool` and `paddock pool`."""
