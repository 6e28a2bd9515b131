"""Count the values of a JSON text without parsing it, to bound the cost of parsing in advance."""

from __future__ import annotations

import re

MAX_JSON_DIGITS = 2**20
"""Maximum digits of numbers in a JSON text; decoding one number takes time quadratic in its digits."""
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_OTHER_BYTES = bytes(set(range(256)) - set(b"0123456789"))
_REST_OF_STRING = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)


class JsonValueCounter:
    """Counts the values of a JSON text that arrives in pieces. Characters inside strings are not counted."""

    def __init__(self) -> None:
        self.values = 0
        self.digits = 0
        """Digits outside strings."""
        self._in_string = False
        self._escaped = False

    def feed(self, piece: bytes) -> int:
        """Count the values that begin in a further piece, and return the total so far."""
        start = 0
        if self._in_string:
            start = self._leave_string(piece)
            if self._in_string:
                return self.values
        outside = _STRING.sub(b"", piece[start:])
        opened = outside.find(b'"')
        if opened >= 0:
            self._in_string = True
            self._escaped = _ends_with_escape(outside, opened + 1)
            outside = outside[:opened]
        self.digits += len(outside.translate(None, _OTHER_BYTES))
        self.values += outside.count(b",") + outside.count(b"[") + outside.count(b"{")
        return self.values

    def _leave_string(self, piece: bytes) -> int:
        """Return the end of a string that began in an earlier piece."""
        start = 1 if self._escaped and piece else 0
        self._escaped = self._escaped and not piece
        found = _REST_OF_STRING.match(piece, start)
        end = found.end() if found else start
        if end >= len(piece):
            return end
        if piece[end : end + 1] == b"\\":
            self._escaped = True
            return end
        self._in_string = False
        return end + 1


def _ends_with_escape(text: bytes, start: int) -> bool:
    tail = text[start:]
    return (len(tail) - len(tail.rstrip(b"\\"))) % 2 == 1


def estimate_value_count(body: bytes) -> int:
    """Return a quick upper bound of the number of values; characters inside strings are counted too."""
    return body.count(b",") + body.count(b"[") + body.count(b"{")


def has_more_values(body: bytes, limit: int) -> bool:
    """Return whether a JSON text has more than `limit` values."""
    return estimate_value_count(body) > limit and JsonValueCounter().feed(body) > limit
