"""Text for the full-text index, and queries of users translated for it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from paddock.errors import InvalidInput
from paddock.llm.formats.neutral import ModelAnswer, ModelRefusal, ModelText, ModelThinking, ModelToolCall

MAX_INDEXED_CHARACTERS = 256 * 1024
"""Indexed characters of one exchange; longer texts are usually pasted files."""
MAX_TERMS = 32
_MAX_QUERY_CHARACTERS = 1000
_MAX_DEPTH = 12
_TEXT_FIELDS = frozenset(("text", "content", "output", "arguments", "input", "thinking", "refusal", "parts", "args"))
_CALL_FIELDS = frozenset(("functionCall", "functionResponse", "function", "tool_calls", "response", "name"))
_NO_WORDS = re.compile(r"[A-Za-z0-9+/=_-]{120,}")
"""Base64 data and digests, which are not searched by word."""
_IDEOGRAPH = re.compile(r"([\u2e80-\u2fdf\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff])")
_TERM = re.compile(r'"([^"]*)"(\*?)|([^\s"]+)')
_ASSISTANTS = frozenset(("assistant", "model"))
_decode = msgspec.json.Decoder().decode


def extract_exchange_text(messages: Iterable[bytes], answer: ModelAnswer | None, *, replies: bool) -> str:
    """Return the text of an exchange: of its messages as they were sent, and of the answer.

    `replies` includes the model's messages; they are excluded if already indexed as answers of earlier exchanges.
    """
    texts: list[str] = []
    for raw in messages:
        try:
            message = _decode(raw)
        except (msgspec.DecodeError, RecursionError):
            continue
        if replies or not _is_model_message(message):
            texts += _strings(message, 0)
    if answer is not None:
        for part in answer.parts:
            if isinstance(part, ModelText | ModelThinking | ModelRefusal):
                texts.append(part.text)
            elif isinstance(part, ModelToolCall):
                texts += [part.name, part.arguments]
    return to_indexable_text("\n".join(texts))


def to_indexable_text(text: str) -> str:
    """Return text as it is indexed. Scripts without spaces between words are indexed by character."""
    text = _NO_WORDS.sub(" ", text[:MAX_INDEXED_CHARACTERS]).encode(errors="replace").decode()
    return text if text.isascii() else _IDEOGRAPH.sub(r" \1 ", text)


def build_full_text_query(text: str) -> str:
    """Translate a user's query into an FTS5 expression: all of its words, "phrases" and prefixes*.

    Raises `InvalidInput`; a returned expression is always valid.
    """
    if len(text) > _MAX_QUERY_CHARACTERS:
        raise InvalidInput(f"text: use at most {_MAX_QUERY_CHARACTERS} characters")
    if text.count('"') % 2:
        raise InvalidInput('text: a phrase begins with " and does not end; add another "')
    terms = []
    for match in _TERM.finditer(text):
        phrase, star, word = match[1], match[2], match[3]
        if word is not None:
            phrase, star = word.rstrip("*"), "*" if word.endswith("*") else ""
        phrase = to_indexable_text(phrase).replace("\0", " ").strip()
        if any(character.isalnum() for character in phrase):
            terms.append(f'"{phrase}"{star}')
    if not terms:
        raise InvalidInput("text: enter at least one word to search for")
    if len(terms) > MAX_TERMS:
        raise InvalidInput(f"text: use at most {MAX_TERMS} words")
    return " AND ".join(terms)


def _is_model_message(message: Any) -> bool:
    if not isinstance(message, dict):
        return False
    return message.get("role") in _ASSISTANTS or message.get("type") in ("function_call", "reasoning")


def _strings(value: Any, depth: int) -> Iterator[str]:
    """Yield the texts of a message in any format: the strings of its text fields."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item, depth + 1)
    elif isinstance(value, dict):
        free = depth > 0 and value.get("type") is None and not (value.keys() & _TEXT_FIELDS)
        for name, inner in value.items():
            if name in _TEXT_FIELDS or name in _CALL_FIELDS or (free and isinstance(inner, str)):
                yield from _strings(inner, depth + 1)
