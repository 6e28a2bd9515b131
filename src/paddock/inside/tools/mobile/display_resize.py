"""Resizes the sandbox's display through its VNC server, as rotating a phone does."""

from __future__ import annotations

import os
import socket
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

RESIZE_TIMEOUT = 3.0
_EXTENDED_DESKTOP_SIZE = -308


def resize_sandbox_display(width: int, height: int) -> bool:
    """Request a display size; False if the server is unreachable or refuses."""
    path = os.environ.get("PADDOCK_DISPLAY_SOCKET", "")
    if not path:
        return False
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(RESIZE_TIMEOUT)
            connection.connect(path)
            with connection.makefile("rb") as stream:
                return _request_size(connection, stream.read, width, height)
    except (OSError, IndexError, struct.error):
        return False


def _request_size(connection: socket.socket, read: Callable[[int], bytes], width: int, height: int) -> bool:
    if not read(12).startswith(b"RFB 003."):
        return False
    connection.sendall(b"RFB 003.008\n")
    read(read(1)[0])
    connection.sendall(b"\x01")  # No password: the socket is reachable inside the sandbox only.
    if read(4) != bytes(4):
        return False
    connection.sendall(b"\x01")  # Shared: keep other viewers connected.
    read(struct.unpack("!I", read(24)[20:])[0])
    connection.sendall(struct.pack("!BxHi", 2, 1, _EXTENDED_DESKTOP_SIZE) + struct.pack("!BBHHHH", 3, 0, 0, 0, 1, 1))
    screen = _read_layout(read)[2]
    connection.sendall(struct.pack("!BxHHBxIHHHHI", 251, width, height, 1, screen, 0, 0, width, height, 0))
    connection.sendall(struct.pack("!BBHHHH", 3, 1, 0, 0, 1, 1))
    reason, status, _ = _read_layout(read)
    return reason == 1 and status == 0


def _read_layout(read: Callable[[int], bytes]) -> tuple[int, int, int]:
    """Read the next ExtendedDesktopSize update: reason, status, and id of the first screen."""
    kind, rectangles = struct.unpack("!BxH", read(4))
    if kind != 0 or rectangles < 1:
        raise struct.error("not a framebuffer update")
    changed_by, status, _, _, encoding = struct.unpack("!HHHHi", read(12))
    if encoding != _EXTENDED_DESKTOP_SIZE:
        raise struct.error("an unexpected encoding")
    screens = read(16 * read(4)[0])
    return changed_by, status, struct.unpack("!I", screens[:4])[0]
