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

    def mask(self, data: bytes) -> bytes:
        """Mask complete data."""
        for pattern in self.patterns:
            if pattern in data:
                data = data.replace(pattern, MASK * len(pattern))
        return data


class StreamMask:
    """Masks a stream; holds back an end that may be the beginning of a value."""

    def __init__(self, mask: SecretMask) -> None:
        self._mask = mask
        self._held = b""
        self._longest = max(map(len, mask.patterns), default=0)

    def feed(self, data: bytes) -> bytes:
        """Return what is safe to send on."""
        if not self._mask.patterns:
            return data
        pending = self._held + data if self._held else data
        cut = self._safe_length(pending)
        self._held = pending[cut:]
        return self._mask.mask(pending[:cut])

    def finish(self) -> bytes:
        """Return the rest: what was held back is no complete value."""
        held, self._held = self._held, b""
        return self._mask.mask(held)

    def _safe_length(self, data: bytes) -> int:
        """Return the length before the first end of data that begins a value, without cutting complete values."""
        cut = len(data)
        for pattern in self._mask.patterns:
            start = max(0, len(data) - len(pattern) + 1)
            while (start := data.find(pattern[:1], start, cut)) >= 0:
                if pattern.startswith(data[start:]):
                    cut = start
                    break
                start += 1
        if cut == len(data):
            return cut
        moved = True
        while moved:
            moved = False
            for pattern in self._mask.patterns:
                start = data.find(pattern, max(0, cut - len(pattern) + 1), cut + len(pattern) - 1)
                if 0 <= start < cut:
                    cut, moved = start, True
        return cut


def _written_forms(value: str) -> Iterable[str]:
    """Yield the forms in which a server may send a value back."""
    decoded = decode_basic_value(value)
    for text in (value, *((decoded, decoded.partition(":")[2]) if decoded else ())):
        if len(text) >= MIN_VALUE:
            yield from (text, quote(text, safe=""), quote_plus(text), json.dumps(text)[1:-1])
            yield json.dumps(text)[1:-1].replace("/", "\\/")
            yield text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
