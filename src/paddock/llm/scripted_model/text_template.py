"""Placeholders in script texts, filled from the conversation, such as `{{ tool.output }}`.

Nothing is evaluated, and inserted values are not scanned for placeholders, so a conversation cannot inject templates.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from paddock.errors import InvalidInput

PLACEHOLDERS = ("prompt", "last.text", "tool.output", "tool.name", "model", "directory", "match")
"""Known placeholders; `match` also as `match.1` or `match.name`, a group of the turn's condition."""
MAX_VALUE_LENGTH = 100_000
"""Maximum length of an inserted value."""
MAX_ANSWER_LENGTH = 2 * 2**20
"""Maximum length of an answer's texts."""
_PLACEHOLDER = re.compile(r"\{\{\s*(?:'([^']*)'|([A-Za-z_][A-Za-z0-9_.]*))\s*\}\}")


def check_script_template(text: str) -> str:
    """Return the text. Raises `ValueError` for an unknown placeholder."""
    for _, word in _PLACEHOLDER.findall(text):
        if word and word not in PLACEHOLDERS and not re.fullmatch(r"match\.(\d{1,2}|[A-Za-z_]\w*)", word):
            known = ", ".join(PLACEHOLDERS)
            raise ValueError(f"there is no {{{{ {word} }}}}; known are: {known}. Write {{{{ '{{{{' }}}} for braces")
    return text


def check_script_templates(value: Any) -> Any:
    """Return the value after checking all texts in it."""
    if isinstance(value, str):
        check_script_template(value)
    elif isinstance(value, Mapping):
        for each in value.values():
            check_script_templates(each)
    elif isinstance(value, list | tuple):
        for each in value:
            check_script_templates(each)
    return value


class ScriptAnswerTooLarge(InvalidInput):
    """The script's answer is too large."""


class ScriptTemplateFiller:
    """Fills the templates of one answer; their total size is limited."""

    def __init__(self, values: Mapping[str, str], limit: int = MAX_ANSWER_LENGTH) -> None:
        self._values = values
        self._limit = self._remaining = limit

    def fill(self, text: str) -> str:
        """Replace the placeholders of a text; missing values become empty. Raises `ScriptAnswerTooLarge`."""
        end = 0

        def put(found: re.Match[str]) -> str:
            nonlocal end
            literal, word = found.groups()
            value = literal if literal is not None else self._values.get(word, "")[:MAX_VALUE_LENGTH]
            self._count(found.start() - end + len(value))
            end = found.end()
            return value

        filled = _PLACEHOLDER.sub(put, text)
        self._count(len(text) - end)
        return filled

    def fill_all(self, value: Any) -> Any:
        """Replace the placeholders in all texts of a value."""
        if isinstance(value, str):
            return self.fill(value)
        if isinstance(value, Mapping):
            return {key: self.fill_all(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.fill_all(each) for each in value]
        return value

    def _count(self, characters: int) -> None:
        self._remaining -= characters
        if self._remaining < 0:
            raise ScriptAnswerTooLarge(f"the script's answer has more than {self._limit:,} characters; make it shorter")
