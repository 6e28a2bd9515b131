"""Terminals in sandboxes that several viewers share."""
