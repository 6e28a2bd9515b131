"""Names of the sandbox extensions that configure access to models."""

from __future__ import annotations

EXTENSION = "paddock.llm"
"""The extension of a sandbox that says `on` or `off`; the names below it hold the other settings."""
WISHES = ("models", "budget-requests", "budget-tokens", "budget-cost", "run", "session", "user")
EXTENSIONS = frozenset({EXTENSION, *(f"{EXTENSION}.{wish}" for wish in WISHES)})
