"""What a viewer of a desktop says, message by message: RFB from client to server.

Everything that reaches a display passes here, and only what is known passes at all.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from paddock.live.frames import Closing

PROTOCOL_ERROR = 1002
NO_SECURITY = 1
MAX_CLIPBOARD = 2**20
MAX_PIXELS = 8192 * 8192
_MOST_ENCODINGS = 1024
_MOST_SCREENS = 16
_MOST_FENCE = 64
_MOST_PRESSED = 256

SET_PIXEL_FORMAT, SET_ENCODINGS, UPDATE_REQUEST, KEY, POINTER, CUT_TEXT = 0, 2, 3, 4, 5, 6
CONTINUOUS_UPDATES, FENCE, SET_DESKTOP_SIZE, QEMU = 150, 248, 251, 255
_FIXED = {SET_PIXEL_FORMAT: 20, UPDATE_REQUEST: 10, KEY: 8, POINTER: 6, CONTINUOUS_UPDATES: 10, QEMU: 12}
_HEADS = {SET_ENCODINGS: 4, CUT_TEXT: 8, FENCE: 9, SET_DESKTOP_SIZE: 8}

EXTENDED_CLIPBOARD = 0xC0A1E5CE - 2**32
_TEXT = 1
_CAPS, _REQUEST, _PEEK, _NOTIFY, PROVIDE = (1 << bit for bit in range(24, 29))
_ENCODINGS = frozenset(
    {
        # Pictures: raw, copy, RRE, CoRRE, hextile, zlib, tight, zlibhex, TRLE, ZRLE, JPEG, H.264, tight with PNG.
        *(0, 1, 2, 4, 5, 6, 7, 8, 15, 16, 21, 50, -260),
        # Cursors and their place, screen size, last rectangle, name, LED states.
        *(-239, -240, -314, 0x574D5664, -232, -223, -308, -224, -307, -261, 0x574D5668),
        # Compression, JPEG quality and subsampling.
        *range(-256, -246),
        *range(-32, -22),
        *range(-512, -411),
        *range(-768, -762),
        # Those with messages of the client's own, all of which are known below: QEMU's keys, fences, continuous
        # updates, the extended clipboard.
        *(-258, -312, -313, EXTENDED_CLIPBOARD),
    }
)


@dataclass(frozen=True)
class Clipboard:
    """Which ways text may go by copy and paste."""

    into: bool = True
    """From viewers into the box."""
    out: bool = True
    """From the box to viewers."""


class ClientMessages:
    """The stream of one viewer. What may pass comes out as whole messages.

    Mouse, keys, clipboard and the size of the screen pass while `touches()` says so, and are dropped otherwise.
    """

    def __init__(
        self,
        touches: Callable[[], bool],
        clipboard: Clipboard,
        noticed: Callable[[bytes], None] = lambda message: None,
    ) -> None:
        self._touches = touches
        self._clipboard = clipboard
        self._noticed = noticed
        """Told of each message of mouse, keys and clipboard that passes."""
        self._read: Callable[[bytes, int], tuple[int, bytes]] = self._version
        self._held = bytearray()
        """A message that has begun."""
        self._needed = 0
        """How long it is, once that is known: until then, and until it is whole, nobody looks at it again."""
        self._pressed: dict[bytes, bytes] = {}
        """Keys that are down, and what lifts each."""
        self._pointer = b""
        """The last pointer event that passed."""

    @property
    def ready(self) -> bool:
        """Whether the handshake is over."""
        return self._read == self._message

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that these bytes complete, as they may pass. Raises `Closing` for what is no RFB."""
        if self._held:
            self._held += data
            if len(self._held) < self._needed:
                return []
            data = bytes(self._held)
        self._needed = 0
        passed: list[bytes] = []
        at, end = 0, len(data)
        while at < end:
            size, message = self._read(data, at)
            if not size:
                break
            at += size
            if message:
                passed.append(message)
        self._held = bytearray(data[at:])
        return passed

    def let_go(self) -> list[bytes]:
        """Messages that lift every key and button that is down: who pressed them cannot any more."""
        lifted = list(self._pressed.values())
        self._pressed.clear()
        if self._pointer and self._pointer[1]:
            lifted.append(self._pointer[:1] + b"\0" + self._pointer[2:])
        self._pointer = b""
        return lifted

    # Each of these reads one message that begins at a place: its size, or 0 when more is needed, and what passes.

    def _version(self, data: bytes, at: int) -> tuple[int, bytes]:
        message = data[at : at + 12]
        if not b"RFB 003.00".startswith(message[:10]):
            raise Closing(PROTOCOL_ERROR, "this is not RFB")
        if len(message) < 12:
            return 0, b""
        if message not in (b"RFB 003.003\n", b"RFB 003.007\n", b"RFB 003.008\n"):
            raise Closing(PROTOCOL_ERROR, "only the versions 3.3, 3.7 and 3.8 of RFB are spoken here")
        # In 3.3 the server alone decides about security.
        self._read = self._init if message[10:11] == b"3" else self._security
        return 12, message

    def _security(self, data: bytes, at: int) -> tuple[int, bytes]:
        if data[at] != NO_SECURITY:
            raise Closing(PROTOCOL_ERROR, "the security type here is None (1): the WebSocket has been let in already")
        self._read = self._init
        return 1, data[at : at + 1]

    def _init(self, data: bytes, at: int) -> tuple[int, bytes]:
        self._read = self._message
        return 1, b"\1"  # Always shared, or one viewer could throw out the others.

    def _message(self, data: bytes, at: int) -> tuple[int, bytes]:
        kind = data[at]
        size = _FIXED.get(kind) or self._size(kind, data, at)
        if not size or len(data) - at < size:
            self._needed = size
            return 0, b""
        message = data[at : at + size]
        if kind == POINTER:
            if not self._touches():
                return size, b""
            self._pointer = message
            self._noticed(message)
        elif kind in (KEY, QEMU, CUT_TEXT):
            passes = self._cut_text(message) if kind == CUT_TEXT else self._key(kind, message)
            if passes:
                self._noticed(passes)
            return size, passes
        elif kind == SET_ENCODINGS:
            return size, self._encodings(message)
        elif kind == SET_DESKTOP_SIZE:
            width, height = struct.unpack_from(">HH", message, 2)
            return size, message if self._touches() and 0 < width * height <= MAX_PIXELS else b""
        return size, message

    def _size(self, kind: int, data: bytes, at: int) -> int:
        least = _HEADS.get(kind)
        if least is None:
            raise Closing(PROTOCOL_ERROR, f"there is no message {kind} from RFB clients here")
        if len(data) - at < least:
            return 0
        if kind == SET_ENCODINGS:
            return least + 4 * _at_most(_MOST_ENCODINGS, int.from_bytes(data[at + 2 : at + 4], "big"), "encodings")
        if kind == CUT_TEXT:
            # A negative length tells of the extended clipboard.
            length = abs(int.from_bytes(data[at + 4 : at + 8], "big", signed=True))
            return least + _at_most(MAX_CLIPBOARD, length, "bytes in the clipboard")
        if kind == FENCE:
            return least + _at_most(_MOST_FENCE, data[at + 8], "bytes in a fence")
        return least + 16 * _at_most(_MOST_SCREENS, data[at + 6], "screens")

    def _key(self, kind: int, message: bytes) -> bytes:
        if kind == QEMU and message[1]:
            raise Closing(PROTOCOL_ERROR, "of QEMU's messages only that of keys is known here")
        if not self._touches():
            return b""
        # What is left of the message without its saying down or up names the key.
        down = message[1] if kind == KEY else message[2] or message[3]
        lifted = message[:1] + b"\0" + message[2:] if kind == KEY else message[:2] + b"\0\0" + message[4:]
        if not down:
            self._pressed.pop(lifted, None)
        elif len(self._pressed) < _MOST_PRESSED:
            self._pressed[lifted] = lifted
        else:
            return b""
        return message

    def _encodings(self, message: bytes) -> bytes:
        count = (len(message) - 4) // 4
        known = [each for each in struct.unpack_from(f">{count}i", message, 4) if each in _ENCODINGS]
        extended = EXTENDED_CLIPBOARD in known
        if not self._clipboard.out and not extended:
            raise Closing(
                1008, "copying out of the box is not allowed; use a client with RFB's extended clipboard, such as noVNC"
            )
        told = struct.pack(f">BxH{len(known)}i", SET_ENCODINGS, len(known), *known)
        return told + _capabilities() if extended else told

    def _cut_text(self, message: bytes) -> bytes:
        """The clipboard is the holder's. With the extended one, nothing comes out that was not asked for."""
        length = int.from_bytes(message[4:8], "big", signed=True)
        if length >= 0:
            return message if self._clipboard.into and self._touches() else b""
        if length > -4:
            raise Closing(PROTOCOL_ERROR, "this clipboard message is too short to be one")
        flags = int.from_bytes(message[8:12], "big")
        if flags & _CAPS:
            return _capabilities()
        allowed = self._clipboard.out if flags & (_REQUEST | _PEEK) else self._clipboard.into
        return message if allowed and self._touches() else b""


def merges(earlier: bytes, later: bytes) -> bool:
    """Whether a pointer event that waits may give way to a later one: a move, with no button changed."""
    return len(earlier) == len(later) == 6 and earlier[0] == later[0] == POINTER and earlier[1] == later[1]


def _capabilities() -> bytes:
    """Says for a client that it wants no clipboard text before it has asked for it."""
    flags = _CAPS | _REQUEST | _PEEK | _NOTIFY | PROVIDE | _TEXT
    return struct.pack(">B3xiII", CUT_TEXT, -8, flags, 0)


def _at_most(most: int, count: int, what: str) -> int:
    if count > most:
        raise Closing(1009, f"more than {most} {what} are not taken")
    return count
