"""Notes of what a translation changed or left out."""

from __future__ import annotations

MOST = 100
_LONGEST = 1000
_MORE = "more was changed or left out than is noted here"


def note(notes: list[str], text: str) -> None:
    """Add a note once. There is an end to them: clients may send any number of things that nobody knows."""
    text = text[:_LONGEST] if len(notes) < MOST else _MORE
    if text not in notes:
        notes.append(text)
