"""Counts the values of a JSON text without reading it, so that the cost of reading it can be bounded before."""

from __future__ import annotations

import re

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_REST_OF_STRING = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)


class ValueCounter:
    """Counts the values of a JSON text that comes in pieces. What stands in strings is not counted."""

    def __init__(self) -> None:
        self.values = 0
        self._in_string = False
        self._escaped = False

    def feed(self, piece: bytes) -> int:
        """Count the values that begin in another piece, and return how many there are so far."""
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
        self.values += outside.count(b",") + outside.count(b"[") + outside.count(b"{")
        return self.values

    def _leave_string(self, piece: bytes) -> int:
        """Return where the string that an earlier piece began ends."""
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


def roughly(body: bytes) -> int:
    """Count quickly; what stands in strings is counted too, so there are never more values than this."""
    return body.count(b",") + body.count(b"[") + body.count(b"{")
