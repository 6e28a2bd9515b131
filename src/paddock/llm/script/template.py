"""The few words a scenario may take from the conversation: `{{ prompt }}`, `{{ tool.output }}` and the like.

Nothing is evaluated. What is put in is never looked at for further words, so a conversation cannot write templates.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

WORDS = ("prompt", "last.text", "tool.output", "tool.name", "model", "directory", "match")
"""What there is; `match` also as `match.1` or `match.name`, a group of the turn's own condition."""
LONGEST = 100_000
"""How much of one thing is put in."""
_WORD = re.compile(r"\{\{\s*(?:'([^']*)'|([A-Za-z_][A-Za-z0-9_.]*))\s*\}\}")


def check(text: str) -> str:
    """The text itself. Raises `ValueError` when it uses a word there is not."""
    for _, word in _WORD.findall(text):
        if word and word not in WORDS and not re.fullmatch(r"match\.(\d{1,2}|[A-Za-z_]\w*)", word):
            known = ", ".join(WORDS)
            raise ValueError(f"there is no {{{{ {word} }}}}; known are: {known}. Write {{{{ '{{{{' }}}} for braces")
    return text


def check_all(value: Any) -> Any:
    """The value itself, all texts in it checked."""
    if isinstance(value, str):
        check(value)
    elif isinstance(value, Mapping):
        for each in value.values():
            check_all(each)
    elif isinstance(value, list | tuple):
        for each in value:
            check_all(each)
    return value


def fill(text: str, words: Mapping[str, str]) -> str:
    """The text with its words put in; one that the conversation does not have is empty."""

    def put(found: re.Match[str]) -> str:
        literal, word = found.groups()
        return literal if literal is not None else words.get(word, "")[:LONGEST]

    return _WORD.sub(put, text)


def fill_all(value: Any, words: Mapping[str, str]) -> Any:
    """The value with all texts in it filled."""
    if isinstance(value, str):
        return fill(value, words)
    if isinstance(value, Mapping):
        return {key: fill_all(each, words) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [fill_all(each, words) for each in value]
    return value
