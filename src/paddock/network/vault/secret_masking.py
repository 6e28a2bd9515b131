"""Mask secret values in responses, also when a value is split between pieces of a body."""

from __future__ import annotations

import json
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

from paddock.network.vault.vault_changes import MIN_VALUE, decode_basic_value

MASK = b"*"


class SecretMask:
    """Replaces secret values by asterisks of the same length, so that lengths of bodies and frames stay right."""

    def __init__(self, values: Iterable[str]) -> None:
        found = {form for value in values for form in _written_forms(value)}
        self.patterns = tuple(sorted((form.encode() for form in found), key=len, reverse=True))

    @property
    def longest(self) -> int:
        return len(self.patterns[0]) if self.patterns else 0

    def mask(self, data: bytes) -> bytes:
        """Mask complete data."""
        masked: bytearray | None = None
        for pattern in self.patterns:
            start = data.find(pattern)
            while start >= 0:  # Occurrences that overlap count too, so that the result does not depend on cuts.
                masked = bytearray(data) if masked is None else masked
                masked[start : start + len(pattern)] = MASK * len(pattern)
                start = data.find(pattern, start + 1)
        return data if masked is None else bytes(masked)


class StreamMask:
    """Masks a stream in which a value may be split between pieces.

    The end of a piece is held back until more comes or `release` is called, whatever it contains: if only beginnings of
    values were held back, a program that gets its own text echoed could find a value letter by letter.
    """

    def __init__(self, mask: SecretMask) -> None:
        self._mask = mask
        self._overlap = max(0, mask.longest - 1)
        self._sent = b""
        """End of what was returned, unmasked, in which a value may have begun."""
        self._held = b""

    @property
    def is_holding(self) -> bool:
        return bool(self._held)

    def feed(self, data: bytes) -> bytes:
        """Return the part of the stream in which no value can be incomplete."""
        if not self._overlap:
            return data
        self._held += data
        return self._take(max(0, len(self._held) - self._overlap))

    def release(self) -> bytes:
        """Return what is held back; if a value has begun there, only its rest is masked."""
        return self._take(len(self._held))

    def _take(self, count: int) -> bytes:
        if not count:
            return b""
        known = self._sent + self._held
        start = len(self._sent)
        masked = self._mask.mask(known)[start : start + count]
        self._sent = known[: start + count][-self._overlap :]
        self._held = self._held[count:]
        return masked


def _written_forms(value: str) -> Iterable[str]:
    """Yield the forms in which a server may send a value back."""
    decoded = decode_basic_value(value)
    for text in (value, *((decoded, decoded.partition(":")[2]) if decoded else ())):
        if len(text) >= MIN_VALUE:
            yield from (text, quote(text, safe=""), quote_plus(text), json.dumps(text)[1:-1])
            yield json.dumps(text)[1:-1].replace("/", "\\/")
            yield text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
