"""Masks secrets in what agents print.

A secret is replaced by as many asterisks, so that positions in the output stay what they are. What agents encode or
take apart is not recognised.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

SHORTEST = 4
"""Shorter secrets are left: masking them would mangle any text."""


class Masker:
    """Masks streams as they come, also where a secret is cut in two."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        written = {form for secret in secrets if len(secret) >= SHORTEST for form in _forms(secret)}
        self._words = sorted((word.encode(errors="replace") for word in written), key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, self._words))) if self._words else None
        self._held: dict[str, bytes] = {}

    def feed(self, stream: str, data: bytes) -> bytes:
        """Return what can be passed on; an end that may be the beginning of a secret is held back."""
        if self._pattern is None:
            return data
        masked = self._mask(self._held.pop(stream, b"") + data)
        end = min((self._beginning(masked, word) for word in self._words), default=len(masked))
        if end < len(masked):
            self._held[stream] = masked[end:]
        return masked[:end]

    def held(self, stream: str) -> int:
        """Return how many bytes of a stream are held back."""
        return len(self._held.get(stream, b""))

    def flush(self, stream: str) -> bytes:
        """Return what was held back, since nothing more comes."""
        return self._held.pop(stream, b"")

    def text(self, text: str) -> str:
        """Mask a whole text."""
        return text if self._pattern is None else self._mask(text.encode(errors="replace")).decode(errors="replace")

    def _mask(self, data: bytes) -> bytes:
        return data if self._pattern is None else self._pattern.sub(lambda found: b"*" * len(found[0]), data)

    @staticmethod
    def _beginning(data: bytes, word: bytes) -> int:
        """Return where an unfinished `word` begins at the end of the data, else its length."""
        start = data.find(word[:1], max(0, len(data) - len(word) + 1))
        while start >= 0 and not word.startswith(data[start:]):
            start = data.find(word[:1], start + 1)
        return start if start >= 0 else len(data)


def _forms(secret: str) -> set[str]:
    """Return a secret as it is, and as it stands in JSON."""
    return {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
