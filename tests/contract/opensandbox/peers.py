"""OpenSandbox's programs, which need an environment of their own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]


def peer(program: str) -> Path:
    """A program's path; the module that asks for it is skipped where it is not installed."""
    found = Path(os.environ.get("PADDOCK_PEERS_VENV", REPOSITORY / ".venv-peers")) / "bin" / program
    if not found.exists():
        pytest.skip(f"{found} is missing; `make setup-test` installs it", allow_module_level=True)
    return found
