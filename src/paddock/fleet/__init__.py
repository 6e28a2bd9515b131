"""Creates, tracks, limits and ends the sandboxes of all tenants."""
