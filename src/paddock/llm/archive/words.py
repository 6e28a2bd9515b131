"""What full-text search is told, and how people ask it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from paddock.errors import InvalidInput
from paddock.llm.neutral import Answer, Refusal, Text, Thinking, ToolCall

LONGEST = 256 * 1024
"""Letters of one exchange that can be found; the rest is a file someone pasted."""
MOST_TERMS = 32
_LONGEST_QUERY = 1000
_DEEPEST = 12
_TEXT_FIELDS = frozenset(("text", "content", "output", "arguments", "input", "thinking", "refusal", "parts", "args"))
_CALL_FIELDS = frozenset(("functionCall", "functionResponse", "function", "tool_calls", "response", "name"))
_NO_WORDS = re.compile(r"[A-Za-z0-9+/=_-]{120,}")
"""Pictures and keys in base64, digests: nobody looks for those by word."""
_IDEOGRAPH = re.compile(r"([\u2e80-\u2fdf\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff])")
_TERM = re.compile(r'"([^"]*)"(\*?)|([^\s"]+)')
_ASSISTANTS = frozenset(("assistant", "model"))
_decode = msgspec.json.Decoder().decode


def said(messages: Iterable[bytes], answer: Answer | None, *, replies: bool) -> str:
    """The words of an exchange: of messages as they were sent, and of the answer.

    `replies` says whether what the messages say the model said counts; it does not where it was found already, as the
    answer of the exchange before.
    """
    texts: list[str] = []
    for raw in messages:
        try:
            message = _decode(raw)
        except (msgspec.DecodeError, RecursionError):
            continue
        if replies or not _by_model(message):
            texts += _strings(message, 0)
    if answer is not None:
        for part in answer.parts:
            if isinstance(part, Text | Thinking | Refusal):
                texts.append(part.text)
            elif isinstance(part, ToolCall):
                texts += [part.name, part.arguments]
    return findable("\n".join(texts))


def findable(text: str) -> str:
    """Text as it is indexed. Languages that put no spaces between words are found by the letter."""
    text = _NO_WORDS.sub(" ", text[:LONGEST]).encode(errors="replace").decode()
    return text if text.isascii() else _IDEOGRAPH.sub(r" \1 ", text)


def query(text: str) -> str:
    """An expression of FTS5 for what somebody typed: all of the words, "phrases" and begin* in it.

    Raises `InvalidInput`; what it returns is always valid, whatever was typed.
    """
    if len(text) > _LONGEST_QUERY:
        raise InvalidInput(f"text: use at most {_LONGEST_QUERY} letters")
    if text.count('"') % 2:
        raise InvalidInput('text: a phrase begins with " and does not end; write another "')
    terms = []
    for match in _TERM.finditer(text):
        phrase, star, word = match[1], match[2], match[3]
        if word is not None:
            phrase, star = word.rstrip("*"), "*" if word.endswith("*") else ""
        phrase = findable(phrase).replace("\0", " ").strip()
        if any(letter.isalnum() for letter in phrase):
            terms.append(f'"{phrase}"{star}')
    if not terms:
        raise InvalidInput("text: give at least one word to look for")
    if len(terms) > MOST_TERMS:
        raise InvalidInput(f"text: give at most {MOST_TERMS} words")
    return " AND ".join(terms)


def _by_model(message: Any) -> bool:
    if not isinstance(message, dict):
        return False
    return message.get("role") in _ASSISTANTS or message.get("type") in ("function_call", "reasoning")


def _strings(value: Any, depth: int) -> Iterator[str]:
    """What a message says, in whatever format: the text in fields that hold some."""
    if depth > _DEEPEST:
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
