"""HTTP in, domain out: one module per family of routes."""
