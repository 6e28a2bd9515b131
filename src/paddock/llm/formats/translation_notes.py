"""Notes about fields that a translation changed or dropped."""

from __future__ import annotations

MAX_NOTES = 100
_MAX_NOTE_LENGTH = 1000
_OVERFLOW_NOTE = "further changes are not listed"


def add_translation_note(notes: list[str], text: str) -> None:
    """Add a note unless it exists; the number of notes is limited, as client input is not."""
    text = text[:_MAX_NOTE_LENGTH] if len(notes) < MAX_NOTES else _OVERFLOW_NOTE
    if text not in notes:
        notes.append(text)
