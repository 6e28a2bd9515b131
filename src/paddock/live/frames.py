"""WebSocket frames on a bare socket, for relays that are too busy for anybody else's."""

from __future__ import annotations

import struct

BINARY, TEXT, CONTINUED = 2, 1, 0
CLOSE, PING, PONG = 8, 9, 10
LONGEST_HEAD = 10
_FINAL, _RESERVED, _MASKED = 0x80, 0x70, 0x80
_MOST_CONTROL = 125
_MOST_REASON = 123


class Closing(Exception):
    """The connection is over: what to tell the client, as a close code and a sentence."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


def head(size: int, kind: int = BINARY) -> bytes:
    """What stands before a whole message of this size. A server masks nothing."""
    if size < 126:
        return bytes((_FINAL | kind, size))
    if size < 2**16:
        return struct.pack(">BBH", _FINAL | kind, 126, size)
    return struct.pack(">BBQ", _FINAL | kind, 127, size)


def control(kind: int, payload: bytes = b"") -> bytes:
    return head(len(payload), kind) + payload


def close(code: int, reason: str) -> bytes:
    """A close frame; a long reason is cut, but not within a character."""
    text = reason.encode()[:_MOST_REASON].decode(errors="ignore").encode()
    return control(CLOSE, struct.pack(">H", code) + text)


class Frames:
    """What a client sends, piece by piece. Pieces of data are handed on as they come, so nothing large is held."""

    def __init__(self) -> None:
        self._held = b""
        """The beginning of a frame's head, or of a control frame."""
        self._left = 0
        """Bytes still to come of the data frame that has begun."""
        self._mask = b""
        self._continuing = False

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """What the bytes mean: `BINARY` pieces in their order, and control frames. Raises `Closing` for nonsense."""
        found: list[tuple[int, bytes]] = []
        if self._held:
            data = self._held + data
            self._held = b""
        at, end = 0, len(data)
        while at < end:
            if self._left:
                piece = data[at : at + self._left]
                at += len(piece)
                self._left -= len(piece)
                found.append((BINARY, _unmasked(piece, self._mask)))
                turn = len(piece) % 4
                self._mask = self._mask[turn:] + self._mask[:turn]
                continue
            # Most frames are short and whole: a look at two bytes says how long the head is.
            if end - at < 2:
                break
            first, second = data[at], data[at + 1]
            size = second & 0x7F
            start = at + (6 if size < 126 else 8 if size == 126 else 14)
            if not second & _MASKED or first & _RESERVED:
                raise Closing(1002, "a client's frames are masked, and no extension was agreed on")
            kind = first & 0x0F
            self._check(kind, bool(first & _FINAL), size)
            if end < start:
                break
            if size == 126:
                size = int.from_bytes(data[at + 2 : at + 4], "big")
            elif size == 127:
                size = int.from_bytes(data[at + 2 : at + 10], "big")
            mask = data[start - 4 : start]
            if kind < CLOSE:
                self._continuing = not first & _FINAL
                kind = BINARY
            if start + size <= end:
                found.append((kind, _unmasked(data[start : start + size], mask)))
                at = start + size
            elif kind == BINARY:
                self._left, self._mask, at = size, mask, start
            else:
                break
        self._held = data[at:]
        return found

    def _check(self, kind: int, final: bool, size: int) -> None:
        if kind in (CLOSE, PING, PONG):
            if not final or size > _MOST_CONTROL:
                raise Closing(1002, "a control frame is short and whole")
        elif kind == TEXT:
            raise Closing(1003, "RFB is binary; text means nothing here")
        elif kind not in (BINARY, CONTINUED) or (kind == CONTINUED) is not self._continuing:
            raise Closing(1002, "this frame makes no sense here")


def _unmasked(data: bytes, mask: bytes) -> bytes:
    size = len(data)
    key = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(data, "little") ^ int.from_bytes(key, "little")).to_bytes(size, "little")
