"""Authenticate, route and answer model requests."""
