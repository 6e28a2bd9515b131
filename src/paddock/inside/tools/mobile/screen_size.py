"""Makes the box's display another size, as turning a phone does: a viewer's request to the display's own server."""

from __future__ import annotations

import os
import socket
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT = 3.0
_EXTENDED_DESKTOP_SIZE = -308


def resize(width: int, height: int) -> bool:
    """Ask for the size; False when the display cannot be asked or does not want to."""
    path = os.environ.get("PADDOCK_DISPLAY_SOCKET", "")
    if not path:
        return False
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as wire:
            wire.settimeout(LIMIT)
            wire.connect(path)
            with wire.makefile("rb") as stream:
                return _ask(wire, stream.read, width, height)
    except (OSError, IndexError, struct.error):
        return False


def _ask(wire: socket.socket, read: Callable[[int], bytes], width: int, height: int) -> bool:
    if not read(12).startswith(b"RFB 003."):
        return False
    wire.sendall(b"RFB 003.008\n")
    read(read(1)[0])
    wire.sendall(b"\x01")  # No password: whoever reaches the socket is in the box.
    if read(4) != bytes(4):
        return False
    wire.sendall(b"\x01")  # Leave the other viewers.
    read(struct.unpack("!I", read(24)[20:])[0])
    wire.sendall(struct.pack("!BxHi", 2, 1, _EXTENDED_DESKTOP_SIZE) + struct.pack("!BBHHHH", 3, 0, 0, 0, 1, 1))
    screen = _layout(read)[2]
    wire.sendall(struct.pack("!BxHHBxIHHHHI", 251, width, height, 1, screen, 0, 0, width, height, 0))
    wire.sendall(struct.pack("!BBHHHH", 3, 1, 0, 0, 1, 1))
    reason, status, _ = _layout(read)
    return reason == 1 and status == 0


def _layout(read: Callable[[int], bytes]) -> tuple[int, int, int]:
    """Read the next word on the layout: who changed it, how that went, and the first screen's id."""
    kind, rectangles = struct.unpack("!BxH", read(4))
    if kind != 0 or rectangles < 1:
        raise struct.error("something else than an update")
    who, status, _, _, encoding = struct.unpack("!HHHHi", read(12))
    if encoding != _EXTENDED_DESKTOP_SIZE:
        raise struct.error("an encoding that was not asked for")
    screens = read(16 * read(4)[0])
    return who, status, struct.unpack("!I", screens[:4])[0]
