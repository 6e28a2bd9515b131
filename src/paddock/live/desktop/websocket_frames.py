"""Minimal WebSocket framing on a raw socket, fast enough for the RFB relay."""

from __future__ import annotations

import struct

BINARY, TEXT, CONTINUED = 2, 1, 0
CLOSE, PING, PONG = 8, 9, 10
MAX_HEADER_SIZE = 10
_FINAL, _RESERVED, _MASKED = 0x80, 0x70, 0x80
_MAX_CONTROL_PAYLOAD = 125
_MAX_CLOSE_REASON = 123


class WebSocketClose(Exception):
    """Ends a connection; carries the close code and the reason for the client."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


def websocket_frame_header(size: int, kind: int = BINARY) -> bytes:
    """Return the header of an unfragmented message of this size. Servers do not mask."""
    if size < 126:
        return bytes((_FINAL | kind, size))
    if size < 2**16:
        return struct.pack(">BBH", _FINAL | kind, 126, size)
    return struct.pack(">BBQ", _FINAL | kind, 127, size)


def websocket_control_frame(kind: int, payload: bytes = b"") -> bytes:
    return websocket_frame_header(len(payload), kind) + payload


def websocket_close_frame(code: int, reason: str) -> bytes:
    """Return a close frame; a long reason is cut at a character boundary."""
    text = reason.encode()[:_MAX_CLOSE_REASON].decode(errors="ignore").encode()
    return websocket_control_frame(CLOSE, struct.pack(">H", code) + text)


class WebSocketFrameParser:
    """Incremental parser of client frames. Data is passed on in pieces, never buffered as a whole."""

    def __init__(self) -> None:
        self._partial = b""
        """The start of an incomplete header or control frame."""
        self._remaining = 0
        """Bytes missing of the current data frame."""
        self._mask = b""
        self._continuing = False

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Return data pieces (as `BINARY`) and control frames in order. Raises `WebSocketClose`."""
        found: list[tuple[int, bytes]] = []
        if self._partial:
            data = self._partial + data
            self._partial = b""
        at, end = 0, len(data)
        while at < end:
            if self._remaining:
                piece = data[at : at + self._remaining]
                at += len(piece)
                self._remaining -= len(piece)
                found.append((BINARY, _unmask(piece, self._mask)))
                turn = len(piece) % 4
                self._mask = self._mask[turn:] + self._mask[:turn]
                continue
            # Most frames are short and complete: two bytes tell how long the header is.
            if end - at < 2:
                break
            first, second = data[at], data[at + 1]
            size = second & 0x7F
            start = at + (6 if size < 126 else 8 if size == 126 else 14)
            if not second & _MASKED or first & _RESERVED:
                raise WebSocketClose(1002, "client frames must be masked, and no extension was negotiated")
            kind = first & 0x0F
            self._check_header(kind, bool(first & _FINAL), size)
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
                found.append((kind, _unmask(data[start : start + size], mask)))
                at = start + size
            elif kind == BINARY:
                self._remaining, self._mask, at = size, mask, start
            else:
                break
        self._partial = data[at:]
        return found

    def _check_header(self, kind: int, final: bool, size: int) -> None:
        if kind in (CLOSE, PING, PONG):
            if not final or size > _MAX_CONTROL_PAYLOAD:
                raise WebSocketClose(1002, "control frames must be short and unfragmented")
        elif kind == TEXT:
            raise WebSocketClose(1003, "RFB is binary; text frames are not accepted")
        elif kind not in (BINARY, CONTINUED) or (kind == CONTINUED) is not self._continuing:
            raise WebSocketClose(1002, "unexpected frame type")


def _unmask(data: bytes, mask: bytes) -> bytes:
    size = len(data)
    key = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(data, "little") ^ int.from_bytes(key, "little")).to_bytes(size, "little")
