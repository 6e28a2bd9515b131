"""Filters the RFB messages that viewers send to a display.

Every byte to a display passes this filter, which forwards known message types only.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from paddock.live.desktop.websocket_frames import WebSocketClose
from paddock.live.rfb_protocol import (
    CLIPBOARD_CAPS,
    CLIPBOARD_NOTIFY,
    CLIPBOARD_PEEK,
    CLIPBOARD_PROVIDE,
    CLIPBOARD_REQUEST,
    CLIPBOARD_TEXT_FORMAT,
    CONTINUOUS_UPDATES,
    CUT_TEXT,
    FENCE,
    KEY,
    POINTER,
    QEMU,
    SET_DESKTOP_SIZE,
    SET_ENCODINGS,
    SET_PIXEL_FORMAT,
    UPDATE_REQUEST,
)

PROTOCOL_ERROR = 1002
NO_SECURITY = 1
MAX_CLIPBOARD = 2**20
MAX_PIXELS = 8192 * 8192
_MAX_ENCODINGS = 1024
_MAX_SCREENS = 16
_MAX_FENCE_BYTES = 64
_MAX_PRESSED_KEYS = 256

_FIXED_SIZES = {SET_PIXEL_FORMAT: 20, UPDATE_REQUEST: 10, KEY: 8, POINTER: 6, CONTINUOUS_UPDATES: 10, QEMU: 12}
_HEADER_SIZES = {SET_ENCODINGS: 4, CUT_TEXT: 8, FENCE: 9, SET_DESKTOP_SIZE: 8}

EXTENDED_CLIPBOARD = 0xC0A1E5CE - 2**32
_ENCODINGS = frozenset(
    {
        # Pictures: raw, copy, RRE, CoRRE, hextile, zlib, tight, zlibhex, TRLE, ZRLE, JPEG, H.264, tight with PNG.
        *(0, 1, 2, 4, 5, 6, 7, 8, 15, 16, 21, 50, -260),
        # Cursors and their position, screen size, last rectangle, name, LED states.
        *(-239, -240, -314, 0x574D5664, -232, -223, -308, -224, -307, -261, 0x574D5668),
        # Compression, JPEG quality and subsampling.
        *range(-256, -246),
        *range(-32, -22),
        *range(-512, -411),
        *range(-768, -762),
        # Encodings that add client messages, all handled below: QEMU keys, fences, continuous updates, the
        # extended clipboard.
        *(-258, -312, -313, EXTENDED_CLIPBOARD),
    }
)


@dataclass(frozen=True)
class ClipboardPolicy:
    """Directions in which clipboard text may pass."""

    to_sandbox: bool = True
    """From viewers into the sandbox."""
    from_sandbox: bool = True
    """From the sandbox to viewers."""


class RfbClientFilter:
    """Parses one viewer's stream and yields the complete messages that may pass.

    Mouse, keys, clipboard and screen size pass while `may_send_input()` is true and are dropped otherwise.
    """

    def __init__(
        self,
        may_send_input: Callable[[], bool],
        clipboard: ClipboardPolicy,
        on_input: Callable[[bytes], None] = lambda message: None,
    ) -> None:
        self._may_send_input = may_send_input
        self._clipboard = clipboard
        self._on_input = on_input
        """Called with each forwarded message of mouse, keys and clipboard."""
        self._read_next: Callable[[bytes, int], tuple[int, bytes]] = self._read_version
        self._partial = bytearray()
        """An incomplete message."""
        self._needed_size = 0
        """Size of the incomplete message if known; it is not parsed again before it is complete."""
        self._pressed_keys: dict[bytes, bytes] = {}
        """Pressed keys, each with the message that releases it."""
        self._pointer = b""
        """The last forwarded pointer event."""

    @property
    def handshake_done(self) -> bool:
        """Tell whether the handshake is complete."""
        return self._read_next == self._read_message

    def feed(self, data: bytes) -> list[bytes]:
        """Return the messages completed by these bytes, filtered. Raises `WebSocketClose` for invalid RFB."""
        if self._partial:
            self._partial += data
            if len(self._partial) < self._needed_size:
                return []
            data = bytes(self._partial)
        self._needed_size = 0
        passed: list[bytes] = []
        at, end = 0, len(data)
        while at < end:
            size, message = self._read_next(data, at)
            if not size:
                break
            at += size
            if message:
                passed.append(message)
        self._partial = bytearray(data[at:])
        return passed

    def release_pressed(self) -> list[bytes]:
        """Return messages that release every pressed key and button."""
        release_messages = list(self._pressed_keys.values())
        self._pressed_keys.clear()
        if self._pointer and self._pointer[1]:
            release_messages.append(self._pointer[:1] + b"\0" + self._pointer[2:])
        self._pointer = b""
        return release_messages

    # Each reader parses one message at an offset; it returns its size (0 if incomplete) and the bytes to forward.

    def _read_version(self, data: bytes, at: int) -> tuple[int, bytes]:
        message = data[at : at + 12]
        if not b"RFB 003.00".startswith(message[:10]):
            raise WebSocketClose(PROTOCOL_ERROR, "this is not RFB")
        if len(message) < 12:
            return 0, b""
        if message not in (b"RFB 003.003\n", b"RFB 003.007\n", b"RFB 003.008\n"):
            raise WebSocketClose(PROTOCOL_ERROR, "only RFB versions 3.3, 3.7 and 3.8 are supported")
        # In 3.3 the server alone decides about security.
        self._read_next = self._read_init if message[10:11] == b"3" else self._read_security
        return 12, message

    def _read_security(self, data: bytes, at: int) -> tuple[int, bytes]:
        if data[at] != NO_SECURITY:
            raise WebSocketClose(
                PROTOCOL_ERROR, "choose security type None (1): the WebSocket is already authenticated"
            )
        self._read_next = self._read_init
        return 1, data[at : at + 1]

    def _read_init(self, data: bytes, at: int) -> tuple[int, bytes]:
        self._read_next = self._read_message
        return 1, b"\1"  # Always shared, so that no viewer can disconnect the others.

    def _read_message(self, data: bytes, at: int) -> tuple[int, bytes]:
        kind = data[at]
        size = _FIXED_SIZES.get(kind) or self._message_size(kind, data, at)
        if not size or len(data) - at < size:
            self._needed_size = size
            return 0, b""
        message = data[at : at + size]
        if kind == POINTER:
            if not self._may_send_input():
                return size, b""
            self._pointer = message
            self._on_input(message)
        elif kind in (KEY, QEMU, CUT_TEXT):
            passes = self._filter_clipboard(message) if kind == CUT_TEXT else self._filter_key(kind, message)
            if passes:
                self._on_input(passes)
            return size, passes
        elif kind == SET_ENCODINGS:
            return size, self._filter_encodings(message)
        elif kind == SET_DESKTOP_SIZE:
            width, height = struct.unpack_from(">HH", message, 2)
            return size, message if self._may_send_input() and 0 < width * height <= MAX_PIXELS else b""
        return size, message

    def _message_size(self, kind: int, data: bytes, at: int) -> int:
        least = _HEADER_SIZES.get(kind)
        if least is None:
            raise WebSocketClose(PROTOCOL_ERROR, f"RFB client message {kind} is not supported")
        if len(data) - at < least:
            return 0
        if kind == SET_ENCODINGS:
            return least + 4 * _check_count(_MAX_ENCODINGS, int.from_bytes(data[at + 2 : at + 4], "big"), "encodings")
        if kind == CUT_TEXT:
            # A negative length marks the extended clipboard.
            length = abs(int.from_bytes(data[at + 4 : at + 8], "big", signed=True))
            return least + _check_count(MAX_CLIPBOARD, length, "bytes in the clipboard")
        if kind == FENCE:
            return least + _check_count(_MAX_FENCE_BYTES, data[at + 8], "bytes in a fence")
        return least + 16 * _check_count(_MAX_SCREENS, data[at + 6], "screens")

    def _filter_key(self, kind: int, message: bytes) -> bytes:
        if kind == QEMU and message[1]:
            raise WebSocketClose(PROTOCOL_ERROR, "of QEMU's messages only key events are supported")
        if not self._may_send_input():
            return b""
        # The message with its down flag cleared identifies the key and releases it.
        down = message[1] if kind == KEY else message[2] or message[3]
        release_message = message[:1] + b"\0" + message[2:] if kind == KEY else message[:2] + b"\0\0" + message[4:]
        if not down:
            self._pressed_keys.pop(release_message, None)
        elif len(self._pressed_keys) < _MAX_PRESSED_KEYS:
            self._pressed_keys[release_message] = release_message
        else:
            return b""
        return message

    def _filter_encodings(self, message: bytes) -> bytes:
        count = (len(message) - 4) // 4
        known = [each for each in struct.unpack_from(f">{count}i", message, 4) if each in _ENCODINGS]
        extended = EXTENDED_CLIPBOARD in known
        if not self._clipboard.from_sandbox and not extended:
            raise WebSocketClose(
                1008,
                "copying out of the sandbox is not allowed; use a client with RFB's extended clipboard, such as noVNC",
            )
        forwarded = struct.pack(f">BxH{len(known)}i", SET_ENCODINGS, len(known), *known)
        return forwarded + _capabilities() if extended else forwarded

    def _filter_clipboard(self, message: bytes) -> bytes:
        """Filter a clipboard message; with the extended clipboard, text is sent only on request."""
        length = int.from_bytes(message[4:8], "big", signed=True)
        if length >= 0:
            return message if self._clipboard.to_sandbox and self._may_send_input() else b""
        if length > -4:
            raise WebSocketClose(PROTOCOL_ERROR, "this clipboard message is too short")
        flags = int.from_bytes(message[8:12], "big")
        if flags & CLIPBOARD_CAPS:
            return _capabilities()
        allowed = (
            self._clipboard.from_sandbox if flags & (CLIPBOARD_REQUEST | CLIPBOARD_PEEK) else self._clipboard.to_sandbox
        )
        return message if allowed and self._may_send_input() else b""


def can_merge_pointer_moves(earlier: bytes, later: bytes) -> bool:
    """Tell whether a later pointer event may replace a queued one: a move without button changes."""
    return len(earlier) == len(later) == 6 and earlier[0] == later[0] == POINTER and earlier[1] == later[1]


def _capabilities() -> bytes:
    """Return clipboard capabilities that disable unsolicited text for a client."""
    flags = (
        CLIPBOARD_CAPS
        | CLIPBOARD_REQUEST
        | CLIPBOARD_PEEK
        | CLIPBOARD_NOTIFY
        | CLIPBOARD_PROVIDE
        | CLIPBOARD_TEXT_FORMAT
    )
    return struct.pack(">B3xiII", CUT_TEXT, -8, flags, 0)


def _check_count(most: int, count: int, what: str) -> int:
    if count > most:
        raise WebSocketClose(1009, f"more than {most} {what} are not accepted")
    return count
