"""Runs tasks: from a file to a sandbox, an agent at work in it, and what comes back."""
