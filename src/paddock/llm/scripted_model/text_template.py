"""Placeholders in script texts, filled from the conversation, such as `{{ tool.output }}`.

Nothing is evaluated, and inserted values are not scanned for placeholders, so a conversation cannot inject templates.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

PLACEHOLDERS = ("prompt", "last.text", "tool.output", "tool.name", "model", "directory", "match")
"""Known placeholders; `match` also as `match.1` or `match.name`, a group of the turn's condition."""
MAX_VALUE_LENGTH = 100_000
"""Maximum length of an inserted value."""
_PLACEHOLDER = re.compile(r"\{\{\s*(?:'([^']*)'|([A-Za-z_][A-Za-z0-9_.]*))\s*\}\}")


def check_template(text: str) -> str:
    """Return the text. Raises `ValueError` for an unknown placeholder."""
    for _, word in _PLACEHOLDER.findall(text):
        if word and word not in PLACEHOLDERS and not re.fullmatch(r"match\.(\d{1,2}|[A-Za-z_]\w*)", word):
            known = ", ".join(PLACEHOLDERS)
            raise ValueError(f"there is no {{{{ {word} }}}}; known are: {known}. Write {{{{ '{{{{' }}}} for braces")
    return text


def check_templates(value: Any) -> Any:
    """Return the value after checking all texts in it."""
    if isinstance(value, str):
        check_template(value)
    elif isinstance(value, Mapping):
        for each in value.values():
            check_templates(each)
    elif isinstance(value, list | tuple):
        for each in value:
            check_templates(each)
    return value


def fill_template(text: str, words: Mapping[str, str]) -> str:
    """Replace the placeholders of a text; missing values become empty."""

    def put(found: re.Match[str]) -> str:
        literal, word = found.groups()
        return literal if literal is not None else words.get(word, "")[:MAX_VALUE_LENGTH]

    return _PLACEHOLDER.sub(put, text)


def fill_templates(value: Any, words: Mapping[str, str]) -> Any:
    """Replace the placeholders in all texts of a value."""
    if isinstance(value, str):
        return fill_template(value, words)
    if isinstance(value, Mapping):
        return {key: fill_templates(each, words) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [fill_templates(each, words) for each in value]
    return value
