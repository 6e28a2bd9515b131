"""Patterns of names and paths in which `*` stands for any text."""

from __future__ import annotations

import re


def wildcard_source(pattern: str) -> str:
    """Return a regular expression for a pattern, to be compiled with `re.DOTALL` and used with `fullmatch`."""
    first, *other_pieces = map(re.escape, pattern.split("*"))
    if not other_pieces:
        return first
    # Atomic groups: each piece matches at its first position only, so that no name takes long to match.
    return first + "".join(f"(?>.*?{piece})" for piece in other_pieces[:-1]) + ".*" + other_pieces[-1]
