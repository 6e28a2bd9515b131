"""Providers that answer model requests: over HTTP, from a script, from a recording or through LiteLLM."""
