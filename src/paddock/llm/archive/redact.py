"""Takes out what the archive must not keep: keys of providers, what looks like a key, and what the operator named.

Only what stands inside the strings of JSON is replaced, so JSON stays JSON. Where nothing is found, which is nearly
always, it costs a look for a few short words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from paddock.config.llm import ArchiveConfig

REDACTED = "[redacted]"
SHORTEST_SECRET = 6
"""Shorter keys are words; taking those out would leave nothing to read."""


def _key(begin: str, rest: str) -> str:
    """A pattern for keys that begin so, where no other word goes on. The `n` of a line break in JSON is no word.

    The fixed beginning stands first, because that makes looking for it fast.
    """
    alone = rf"(?:(?<![A-Za-z0-9_-]{begin})|(?<=\\[nrtbf]{begin})|(?<=\\u00[0-9A-Fa-f]{{2}}{begin}))"
    return rf"{begin}{alone}{rest}"


_KEYS = {
    "sk-": _key("sk-", r"(?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{20,}"),
    "AIza": _key("AIza", r"[A-Za-z0-9_-]{30,}"),
    "pdk_": r"pdk_[A-Za-z0-9]{20,}",
    "earer ": r"(?<=[Bb]earer )[A-Za-z0-9._~+/=-]{20,}",
    "AKIA": _key("AKIA", r"[A-Z0-9]{16}(?![A-Za-z0-9])"),
    "ASIA": _key("ASIA", r"[A-Z0-9]{16}(?![A-Za-z0-9])"),
    "secret_access_key": r"(?<=secret_access_key)[^A-Za-z0-9/+,{}\[\]]{1,8}[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+])",
    "SECRET_ACCESS_KEY": r"(?<=SECRET_ACCESS_KEY)[^A-Za-z0-9/+,{}\[\]]{1,8}[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+])",
    "ghp_": _key("ghp_", r"[A-Za-z0-9]{30,}"),
    "gho_": _key("gho_", r"[A-Za-z0-9]{30,}"),
    "ghs_": _key("ghs_", r"[A-Za-z0-9]{30,}"),
    "github_pat_": _key("github_pat_", r"[A-Za-z0-9_]{30,}"),
    "glpat-": _key("glpat-", r"[A-Za-z0-9_-]{20,}"),
    "xox": _key("xox", r"[abeoprs]-[A-Za-z0-9-]{20,}"),
    "hf_": _key("hf_", r"[A-Za-z0-9]{30,}"),
    "eyJ": _key("eyJ", r"[A-Za-z0-9_-]{10,}+\.eyJ[A-Za-z0-9_-]{10,}+\.[A-Za-z0-9_-]{10,}"),
    "PRIVATE KEY-----": r"-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----[^\"-]{1,16000}+-----END [A-Z ]{0,20}PRIVATE KEY-----",
}
"""A word without which there is nothing to find, and the pattern."""
_AFTER_NAME = re.compile(r"[A-Za-z0-9/+]{40}$")
_SIGNS = (
    rb"k[-_][A-Za-z0-9_-]{16}|Iza[A-Za-z0-9_-]{16}|Bearer |bearer |KIA[A-Z0-9]{16}|SIA[A-Z0-9]{16}|_access_key"
    rb"|_ACCESS_KEY|gh[pos]_|_pat_|glpat-|xox|f_[A-Za-z0-9]{16}|yJ[A-Za-z0-9_-]{10}|PRIVATE KEY"
)
"""Something of this is in all that the patterns find. Each begins with a rare letter, which makes it fast."""
_INSIDE = rb'[^"\\]*+(?:\\.[^"\\]*+)*+'
"""What stands between the quotes of a string. It never looks twice at a letter, whoever wrote it."""
_STRING = re.compile(rb'"(%b)"(\s*+:)?' % _INSIDE, re.DOTALL)
_DELTA = re.compile(
    rb'"(content|text|delta|partial_json|thinking|arguments|reasoning|reasoning_content|refusal|input)"\s*+:\s*+'
    rb'"(%b)"' % _INSIDE,
    re.DOTALL,
)
"""The fields in which streams say a little more of what they are saying."""
_lenient = json.JSONDecoder(strict=False).decode


class _Edit(NamedTuple):
    start: int
    end: int
    instead: bytes


class Redactor:
    """What is taken out of everything that is kept."""

    def __init__(self, settings: ArchiveConfig, secrets: Iterable[str]) -> None:
        known = {form for text in secrets if len(text) >= SHORTEST_SECRET for form in _written(text)}
        patterns = {form: re.escape(form) for form in sorted(known, key=len, reverse=True)}
        if settings.redact_keys:
            patterns |= _KEYS
        self._in_text = [(word, re.compile(pattern)) for word, pattern in patterns.items()]
        self._in_bytes = [(word.encode(), re.compile(pattern.encode())) for word, pattern in patterns.items()]
        signs = [re.escape(form.encode()) for form in known] + ([_SIGNS] if settings.redact_keys else [])
        self._signs = re.compile(b"|".join(signs)) if signs else None
        self._rules = [(re.compile(rule.pattern), rule.replacement) for rule in settings.redact]

    def suspects(self, data: bytes) -> bool:
        """Whether there may be anything to take out; a quick look at all that is to be kept of an exchange."""
        return bool(self._rules) or (self._signs is not None and self._signs.search(data) is not None)

    def json(self, data: bytes) -> bytes:
        """JSON, a stream of it, or a part of it that does not begin inside a string."""
        data = _apply(data, self._known(data))
        return _apply(data, self._named(data)) if self._rules else data

    def plain(self, data: bytes) -> bytes:
        """Bytes that are not JSON."""
        data = _apply(data, self._known(data))
        if not self._rules:
            return data
        text = data.decode(errors="surrogateescape")
        for rule, instead in self._rules:
            text = rule.sub(lambda _, instead=instead: instead, text)  # type: ignore[misc]
        return text.encode(errors="surrogateescape")

    def text(self, text: str) -> str:
        for start, end, instead in reversed(self._spans(text)):
            text = text[:start] + instead + text[end:]
        return text

    def answer(self, pieces: Sequence[tuple[float, bytes]], stream: bool) -> Sequence[tuple[float, bytes]]:
        """An answer as it came; what is found may be spread over pieces."""
        whole = pieces[0][1] if len(pieces) == 1 else b"".join([piece for _, piece in pieces])
        if not stream and whole.lstrip()[:1] not in (b"{", b"["):
            cleaned = self.plain(whole)
            return pieces if cleaned == whole else [(pieces[0][0], cleaned)]
        pieces, whole = _cut(pieces, self._known(whole), whole)
        return _cut(pieces, self._named(whole), whole)[0] if self._rules else pieces

    def stream(self, pieces: Sequence[tuple[float, bytes]]) -> Sequence[tuple[float, bytes]]:
        """What is left is spread over the events of a stream."""
        if self._signs is None and not self._rules:
            return pieces
        whole = b"".join([piece for _, piece in pieces])
        return _cut(pieces, self._spread(whole), whole)[0]

    def _known(self, data: bytes) -> list[_Edit]:
        """Keys that stand in one piece."""
        hits = [pattern for word, pattern in self._in_bytes if word in data]
        if not hits:
            return []
        edits = []
        for pattern in hits:
            for match in pattern.finditer(data):
                edits.append(_Edit(_value_start(match[0].decode("latin-1"), match.start()), match.end(), b"[redacted]"))
        return _disjoint(edits)

    def _named(self, data: bytes) -> list[_Edit]:
        """What the operator's rules find within single strings."""
        edits = []
        for match in _STRING.finditer(data):
            if match[2]:
                continue  # The name of a field.
            text = _decoded(match[1])
            changed = text
            for rule, instead in self._rules:
                changed = rule.sub(lambda _, instead=instead: instead, changed)  # type: ignore[misc]
            if changed != text:
                edits.append(_Edit(match.start(1), match.end(1), _encoded(changed)))
        return edits

    def _spread(self, data: bytes) -> list[_Edit]:
        """What is said a few letters at a time, over many events."""
        fields: dict[bytes, list[re.Match[bytes]]] = {}
        for match in _DELTA.finditer(data):
            fields.setdefault(match[1], []).append(match)
        edits: list[_Edit] = []
        for matches in fields.values():
            # A quick look at the bytes will do, because what is looked for is also known as JSON writes it.
            if len(matches) < 2 or not self.suspects(b"".join([match[2] for match in matches])):
                continue
            texts = [_decoded(match[2]) for match in matches]
            spans = self._spans("".join(texts))
            if spans:
                edits += _over(matches, texts, spans)
        return sorted(edits)

    def _spans(self, text: str) -> list[tuple[int, int, str]]:
        """Where something is to be taken out of text, in order and apart, and what stands there instead."""
        found: list[tuple[int, int, str]] = []
        for word, pattern in self._in_text:
            if word in text:
                found += [(_value_start(m[0], m.start()), m.end(), REDACTED) for m in pattern.finditer(text)]
        for rule, instead in self._rules:
            found += [(match.start(), match.end(), instead) for match in rule.finditer(text) if match[0]]
        apart: list[tuple[int, int, str]] = []
        for start, end, instead in sorted(found):
            if apart and start < apart[-1][1]:
                first, last, kept = apart.pop()
                apart.append((first, max(last, end), kept))
            else:
                apart.append((start, end, instead))
        return apart


def _written(secret: str) -> set[str]:
    """A secret as it may stand in JSON."""
    escaped = json.dumps(secret)[1:-1]
    return {secret, escaped, escaped.replace("/", "\\/"), json.dumps(secret, ensure_ascii=False)[1:-1]}


def _value_start(found: str, start: int) -> int:
    """Some patterns find a value with what stands between it and its name, which stays."""
    if found[:1].isalnum() or found[:1] == "-":
        return start
    value = _AFTER_NAME.search(found)
    return start + value.start() if value else start


def _disjoint(edits: list[_Edit]) -> list[_Edit]:
    apart: list[_Edit] = []
    for edit in sorted(edits):
        if apart and edit.start < apart[-1].end:
            apart[-1] = apart[-1]._replace(end=max(apart[-1].end, edit.end))
        else:
            apart.append(edit)
    return apart


def _apply(data: bytes, edits: list[_Edit]) -> bytes:
    if not edits:
        return data
    result, place = [], 0
    for start, end, instead in edits:
        result += [data[place:start], instead]
        place = end
    result.append(data[place:])
    return b"".join(result)


def _cut(
    pieces: Sequence[tuple[float, bytes]], edits: list[_Edit], whole: bytes
) -> tuple[Sequence[tuple[float, bytes]], bytes]:
    """The pieces with the edits made, and all of them as one.

    What stands instead of something comes with the piece in which that began.
    """
    if not edits:
        return pieces, whole
    changed = []
    start = 0
    waiting = iter([*edits, _Edit(len(whole) + 1, len(whole) + 1, b"")])
    edit = next(waiting)
    skip = 0
    for moment, piece in pieces:
        end, place, parts = start + len(piece), max(start, skip), []
        while edit.start < end:
            parts += [whole[place : edit.start], edit.instead]
            place = skip = edit.end
            edit = next(waiting)
        parts.append(whole[place:end] if place < end else b"")
        changed.append((moment, b"".join(parts)))
        start = end
    return changed, b"".join([piece for _, piece in changed])


def _over(matches: list[re.Match[bytes]], texts: list[str], spans: list[tuple[int, int, str]]) -> list[_Edit]:
    """Edits of the single strings that together say what is to be taken out."""
    edits = []
    offset = 0
    for match, text in zip(matches, texts, strict=True):
        kept, place, end = [], 0, offset + len(text)
        for start, stop, instead in spans:
            if stop <= offset or start >= end:
                continue
            kept.append(text[place : max(0, start - offset)])
            if start >= offset:
                kept.append(instead)
            place = min(len(text), stop - offset)
        if place or kept:
            kept.append(text[place:])
            edits.append(_Edit(match.start(2), match.end(2), _encoded("".join(kept))))
        offset = end
    return edits


def _decoded(literal: bytes) -> str:
    if b"\\" not in literal:
        return literal.decode(errors="surrogateescape")
    try:
        text: str = _lenient(f'"{literal.decode(errors="surrogateescape")}"')
    except ValueError:
        return literal.decode(errors="surrogateescape")
    return text


def _encoded(text: str) -> bytes:
    return json.dumps(text, ensure_ascii=any(0xD800 <= ord(letter) <= 0xDFFF for letter in text))[1:-1].encode()
