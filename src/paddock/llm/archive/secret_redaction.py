"""Redact secrets before archiving: keys of providers, texts that look like keys, and matches of the operator's rules.

Only the content of JSON strings is replaced, so JSON stays valid. Without a match, which is the usual case, the cost is
one search for a few short patterns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from paddock.config.llm import ArchiveConfig

REDACTED = "[redacted]"
MIN_SECRET_LENGTH = 6
"""Shorter keys look like words; redacting them would make texts unreadable."""


def _key_pattern(begin: str, rest: str) -> str:
    """Return a pattern for keys with this prefix, unless inside a longer word; JSON escapes do not count as words.

    The fixed prefix comes first in the pattern, which makes the search fast.
    """
    not_inside_a_word = rf"(?:(?<![A-Za-z0-9_-]{begin})|(?<=\\[nrtbf]{begin})|(?<=\\u00[0-9A-Fa-f]{{2}}{begin}))"
    return rf"{begin}{not_inside_a_word}{rest}"


_KEYS = {
    "sk-": _key_pattern("sk-", r"(?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{20,}"),
    "AIza": _key_pattern("AIza", r"[A-Za-z0-9_-]{30,}"),
    "pdk_": r"pdk_[A-Za-z0-9]{20,}",
    "earer ": r"(?<=[Bb]earer )[A-Za-z0-9._~+/=-]{20,}",
    "AKIA": _key_pattern("AKIA", r"[A-Z0-9]{16}(?![A-Za-z0-9])"),
    "ASIA": _key_pattern("ASIA", r"[A-Z0-9]{16}(?![A-Za-z0-9])"),
    "secret_access_key": r"(?<=secret_access_key)[^A-Za-z0-9/+,{}\[\]]{1,8}[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+])",
    "SECRET_ACCESS_KEY": r"(?<=SECRET_ACCESS_KEY)[^A-Za-z0-9/+,{}\[\]]{1,8}[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+])",
    "ghp_": _key_pattern("ghp_", r"[A-Za-z0-9]{30,}"),
    "gho_": _key_pattern("gho_", r"[A-Za-z0-9]{30,}"),
    "ghs_": _key_pattern("ghs_", r"[A-Za-z0-9]{30,}"),
    "github_pat_": _key_pattern("github_pat_", r"[A-Za-z0-9_]{30,}"),
    "glpat-": _key_pattern("glpat-", r"[A-Za-z0-9_-]{20,}"),
    "xox": _key_pattern("xox", r"[abeoprs]-[A-Za-z0-9-]{20,}"),
    "hf_": _key_pattern("hf_", r"[A-Za-z0-9]{30,}"),
    "eyJ": _key_pattern("eyJ", r"[A-Za-z0-9_-]{10,}+\.eyJ[A-Za-z0-9_-]{10,}+\.[A-Za-z0-9_-]{10,}"),
    "PRIVATE KEY-----": r"-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----[^\"-]{1,16000}+-----END [A-Z ]{0,20}PRIVATE KEY-----",
}
"""Patterns by a literal that every match contains."""
_SECRET_VALUE = re.compile(r"[A-Za-z0-9/+]{40}$")
_SIGNS = (
    rb"k[-_][A-Za-z0-9_-]{16}|Iza[A-Za-z0-9_-]{16}|Bearer |bearer |KIA[A-Z0-9]{16}|SIA[A-Z0-9]{16}|_access_key"
    rb"|_ACCESS_KEY|gh[pos]_|_pat_|glpat-|xox|f_[A-Za-z0-9]{16}|yJ[A-Za-z0-9_-]{10}|PRIVATE KEY"
)
"""Matches part of every possible key. Alternatives start with a rare letter, which makes the search fast."""
_INSIDE = rb'[^"\\]*+(?:\\.[^"\\]*+)*+'
"""The content of a JSON string. Possessive, so hostile input cannot cause backtracking."""
_STRING = re.compile(rb'"(%b)"(\s*+:)?' % _INSIDE, re.DOTALL)
_DELTA = re.compile(
    rb'"(content|text|delta|partial_json|thinking|arguments|reasoning|reasoning_content|refusal|input)"\s*+:\s*+'
    rb'"(%b)"' % _INSIDE,
    re.DOTALL,
)
"""The fields of stream events that contain text fragments."""
_lenient = json.JSONDecoder(strict=False).decode


class _Edit(NamedTuple):
    start: int
    end: int
    replacement: bytes


class SecretRedactor:
    """Redacts secrets from requests, responses and texts."""

    def __init__(self, settings: ArchiveConfig, secrets: Iterable[str]) -> None:
        known = {form for text in secrets if len(text) >= MIN_SECRET_LENGTH for form in _json_forms(text)}
        patterns = {form: re.escape(form) for form in sorted(known, key=len, reverse=True)}
        if settings.redact_keys:
            patterns |= _KEYS
        self._in_text = [(word, re.compile(pattern)) for word, pattern in patterns.items()]
        self._in_bytes = [(word.encode(), re.compile(pattern.encode())) for word, pattern in patterns.items()]
        markers = [re.escape(form.encode()) for form in known] + ([_SIGNS] if settings.redact_keys else [])
        self._markers = re.compile(b"|".join(markers)) if markers else None
        self._rules = [(re.compile(rule.pattern), rule.replacement) for rule in settings.redact]

    def may_contain_secrets(self, data: bytes) -> bool:
        """Return whether data may contain a secret; a quick check of a whole exchange."""
        return bool(self._rules) or (self._markers is not None and self._markers.search(data) is not None)

    def redact_json(self, data: bytes) -> bytes:
        """Redact JSON, a stream of JSON, or a part of JSON that does not begin inside a string."""
        data = _apply_edits(data, self._find_keys(data))
        return _apply_edits(data, self._find_by_rules(data)) if self._rules else data

    def redact_bytes(self, data: bytes) -> bytes:
        """Redact bytes that are not JSON."""
        data = _apply_edits(data, self._find_keys(data))
        if not self._rules:
            return data
        text = data.decode(errors="surrogateescape")
        for rule, replacement in self._rules:
            text = rule.sub(lambda _, replacement=replacement: replacement, text)  # type: ignore[misc]
        return text.encode(errors="surrogateescape")

    def redact_text(self, text: str) -> str:
        for start, end, replacement in reversed(self._find_in_text(text)):
            text = text[:start] + replacement + text[end:]
        return text

    def redact_response(self, pieces: Sequence[tuple[float, bytes]], stream: bool) -> Sequence[tuple[float, bytes]]:
        """Redact the pieces of a response; a secret may extend over several pieces."""
        content = pieces[0][1] if len(pieces) == 1 else b"".join([piece for _, piece in pieces])
        if not stream and content.lstrip()[:1] not in (b"{", b"["):
            cleaned = self.redact_bytes(content)
            return pieces if cleaned == content else [(pieces[0][0], cleaned)]
        pieces, content = _edit_pieces(pieces, self._find_keys(content), content)
        return _edit_pieces(pieces, self._find_by_rules(content), content)[0] if self._rules else pieces

    def redact_stream(self, pieces: Sequence[tuple[float, bytes]]) -> Sequence[tuple[float, bytes]]:
        """Redact secrets that are spread over several events of a stream."""
        if self._markers is None and not self._rules:
            return pieces
        content = b"".join([piece for _, piece in pieces])
        return _edit_pieces(pieces, self._find_across_events(content), content)[0]

    def _find_keys(self, data: bytes) -> list[_Edit]:
        """Find keys that are contiguous in the data."""
        hits = [pattern for word, pattern in self._in_bytes if word in data]
        if not hits:
            return []
        edits = []
        for pattern in hits:
            for match in pattern.finditer(data):
                edits.append(_Edit(_value_start(match[0].decode("latin-1"), match.start()), match.end(), b"[redacted]"))
        return _merge_overlapping(edits)

    def _find_by_rules(self, data: bytes) -> list[_Edit]:
        """Find matches of the operator's rules within single JSON strings."""
        edits = []
        for match in _STRING.finditer(data):
            if match[2]:
                continue  # A field name.
            text = _decode_literal(match[1])
            changed = text
            for rule, replacement in self._rules:
                changed = rule.sub(lambda _, replacement=replacement: replacement, changed)  # type: ignore[misc]
            if changed != text:
                edits.append(_Edit(match.start(1), match.end(1), _encode_literal(changed)))
        return edits

    def _find_across_events(self, data: bytes) -> list[_Edit]:
        """Find secrets that are spread over text fragments of several events."""
        fields: dict[bytes, list[re.Match[bytes]]] = {}
        for match in _DELTA.finditer(data):
            fields.setdefault(match[1], []).append(match)
        edits: list[_Edit] = []
        for matches in fields.values():
            # Checking the raw bytes is enough, because the patterns include the JSON-escaped forms of secrets.
            if len(matches) < 2 or not self.may_contain_secrets(b"".join([match[2] for match in matches])):
                continue
            texts = [_decode_literal(match[2]) for match in matches]
            spans = self._find_in_text("".join(texts))
            if spans:
                edits += _edits_across_strings(matches, texts, spans)
        return sorted(edits)

    def _find_in_text(self, text: str) -> list[tuple[int, int, str]]:
        """Return ordered, disjoint spans to redact in a text, with their replacements."""
        found: list[tuple[int, int, str]] = []
        for word, pattern in self._in_text:
            if word in text:
                found += [(_value_start(m[0], m.start()), m.end(), REDACTED) for m in pattern.finditer(text)]
        for rule, replacement in self._rules:
            found += [(match.start(), match.end(), replacement) for match in rule.finditer(text) if match[0]]
        disjoint: list[tuple[int, int, str]] = []
        for start, end, replacement in sorted(found):
            if disjoint and start < disjoint[-1][1]:
                first, last, pieces_kept = disjoint.pop()
                disjoint.append((first, max(last, end), pieces_kept))
            else:
                disjoint.append((start, end, replacement))
        return disjoint


def _json_forms(secret: str) -> set[str]:
    """Return all forms in which JSON may contain a secret."""
    escaped = json.dumps(secret)[1:-1]
    return {secret, escaped, escaped.replace("/", "\\/"), json.dumps(secret, ensure_ascii=False)[1:-1]}


def _value_start(found: str, start: int) -> int:
    """Return where the secret starts in a match; some patterns include the separator after its name."""
    if found[:1].isalnum() or found[:1] == "-":
        return start
    value = _SECRET_VALUE.search(found)
    return start + value.start() if value else start


def _merge_overlapping(edits: list[_Edit]) -> list[_Edit]:
    disjoint: list[_Edit] = []
    for edit in sorted(edits):
        if disjoint and edit.start < disjoint[-1].end:
            disjoint[-1] = disjoint[-1]._replace(end=max(disjoint[-1].end, edit.end))
        else:
            disjoint.append(edit)
    return disjoint


def _apply_edits(data: bytes, edits: list[_Edit]) -> bytes:
    if not edits:
        return data
    result, cursor = [], 0
    for start, end, replacement in edits:
        result += [data[cursor:start], replacement]
        cursor = end
    result.append(data[cursor:])
    return b"".join(result)


def _edit_pieces(
    pieces: Sequence[tuple[float, bytes]], edits: list[_Edit], content: bytes
) -> tuple[Sequence[tuple[float, bytes]], bytes]:
    """Apply edits to pieces, and return the pieces and their concatenation.

    A replacement goes into the piece in which the replaced text begins.
    """
    if not edits:
        return pieces, content
    changed = []
    start = 0
    waiting = iter([*edits, _Edit(len(content) + 1, len(content) + 1, b"")])
    edit = next(waiting)
    skip = 0
    for moment, piece in pieces:
        end, cursor, parts = start + len(piece), max(start, skip), []
        while edit.start < end:
            parts += [content[cursor : edit.start], edit.replacement]
            cursor = skip = edit.end
            edit = next(waiting)
        parts.append(content[cursor:end] if cursor < end else b"")
        changed.append((moment, b"".join(parts)))
        start = end
    return changed, b"".join([piece for _, piece in changed])


def _edits_across_strings(
    matches: list[re.Match[bytes]], texts: list[str], spans: list[tuple[int, int, str]]
) -> list[_Edit]:
    """Return edits of single strings for spans in their concatenation."""
    edits = []
    offset = 0
    for match, text in zip(matches, texts, strict=True):
        pieces_kept, cursor, end = [], 0, offset + len(text)
        for start, stop, replacement in spans:
            if stop <= offset or start >= end:
                continue
            pieces_kept.append(text[cursor : max(0, start - offset)])
            if start >= offset:
                pieces_kept.append(replacement)
            cursor = min(len(text), stop - offset)
        if cursor or pieces_kept:
            pieces_kept.append(text[cursor:])
            edits.append(_Edit(match.start(2), match.end(2), _encode_literal("".join(pieces_kept))))
        offset = end
    return edits


def _decode_literal(literal: bytes) -> str:
    if b"\\" not in literal:
        return literal.decode(errors="surrogateescape")
    try:
        text: str = _lenient(f'"{literal.decode(errors="surrogateescape")}"')
    except ValueError:
        return literal.decode(errors="surrogateescape")
    return text


def _encode_literal(text: str) -> bytes:
    return json.dumps(text, ensure_ascii=any(0xD800 <= ord(character) <= 0xDFFF for character in text))[1:-1].encode()
