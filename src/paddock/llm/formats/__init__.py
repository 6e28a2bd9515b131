"""Translate between the wire formats of model APIs, through one neutral form."""
