"""Names of the sandbox extensions that configure access to models."""

from __future__ import annotations

LLM_EXTENSION = "paddock.llm"
"""Extension with the value `on` or `off`; the other settings are named below it."""
EXTENSION_SETTINGS = ("models", "budget-requests", "budget-tokens", "budget-cost", "run", "session", "user")
LLM_EXTENSIONS = frozenset({LLM_EXTENSION, *(f"{LLM_EXTENSION}.{setting}" for setting in EXTENSION_SETTINGS)})
