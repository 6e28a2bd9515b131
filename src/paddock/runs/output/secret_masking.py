"""Secret masking in agent output.

A secret is replaced by asterisks of the same length, so that output positions do not change. Encoded or split
secrets are not recognised.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

MIN_SECRET_LENGTH = 4
"""Shorter secrets are not masked, because they occur in ordinary text."""


class SecretMasker:
    """Streaming masker, also for secrets that are split between pieces."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        written = {form for secret in secrets if len(secret) >= MIN_SECRET_LENGTH for form in _encoded_forms(secret)}
        self._words = sorted((word.encode(errors="replace") for word in written), key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, self._words))) if self._words else None
        self._held: dict[str, bytes] = {}

    def feed(self, stream: str, data: bytes) -> bytes:
        """Return masked data; hold back an end that may start a secret."""
        if self._pattern is None:
            return data
        masked = self._mask(self._held.pop(stream, b"") + data)
        end = min((self._partial_match_start(masked, word) for word in self._words), default=len(masked))
        if end < len(masked):
            self._held[stream] = masked[end:]
        return masked[:end]

    def held_back_bytes(self, stream: str) -> int:
        """Return how many bytes of a stream are held back."""
        return len(self._held.get(stream, b""))

    def flush(self, stream: str) -> bytes:
        """Return held-back data at the end of the stream."""
        return self._held.pop(stream, b"")

    def mask_text(self, text: str) -> str:
        """Mask a whole text."""
        return text if self._pattern is None else self._mask(text.encode(errors="replace")).decode(errors="replace")

    def _mask(self, data: bytes) -> bytes:
        return data if self._pattern is None else self._pattern.sub(lambda found: b"*" * len(found[0]), data)

    @staticmethod
    def _partial_match_start(data: bytes, word: bytes) -> int:
        """Return where an unfinished `word` begins at the end of the data, else its length."""
        start = data.find(word[:1], max(0, len(data) - len(word) + 1))
        while start >= 0 and not word.startswith(data[start:]):
            start = data.find(word[:1], start + 1)
        return start if start >= 0 else len(data)


def _encoded_forms(secret: str) -> set[str]:
    """Return a secret and its JSON encodings."""
    return {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
