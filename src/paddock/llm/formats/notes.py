"""Notes of what a translation changed or left out."""

from __future__ import annotations


def note(notes: list[str], text: str) -> None:
    """Add a note once."""
    if text not in notes:
        notes.append(text)
