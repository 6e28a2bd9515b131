"""Credential vaults: put credentials into requests of sandboxes on their way, outside the sandboxes."""
