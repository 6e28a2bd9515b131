"""Ways to the box's display, where RFB is spoken."""

from __future__ import annotations

import socket
import time

from ..box import Box
from ..errors import ApiError, not_supported
from ..greetings import DISPLAY, display_socket
from ..http import Reply, Request, Takeover, Wire, error_reply
from ..pump import join
from ..wire import Disconnected

COMING_UP = 10.0
"""Seconds that a display which is being started is waited for."""
GREETING = 5.0
"""Seconds in which a display speaks first, as RFB has it; one that is dying takes connections and says nothing."""


def connect(box: Box, request: Request) -> Reply:
    """With `Upgrade: fd`, connect and hand the descriptor out; with `Upgrade: tcp`, stay in between."""
    upgrade = request.header("upgrade").lower()
    if upgrade not in ("fd", "tcp"):
        raise ApiError(426, "UPGRADE_REQUIRED", "send Connection: Upgrade and Upgrade: fd, or Upgrade: tcp")
    server = _dial(box)
    if upgrade == "tcp":
        return Takeover(lambda wire: _tunnel(wire, server))
    return Takeover(lambda wire: _hand_out(wire, server, request))


def _dial(box: Box) -> socket.socket:
    """Connect to a display that is there; one that is being started, also anew after its death, is waited for."""
    path = display_socket(box.environment)
    deadline = time.monotonic() + COMING_UP
    while True:
        if box.services.has(DISPLAY):
            box.services.wait_ready([DISPLAY], max(0.0, deadline - time.monotonic()))
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            server.settimeout(GREETING)
            server.connect(path)
            if server.recv(1, socket.MSG_PEEK):
                return server
            why = "it has just ended"
        except OSError as error:
            why = error.strerror or "it says nothing"
        server.close()
        if time.monotonic() >= deadline or not box.services.has(DISPLAY):
            advice = "start it, or use an image with a screen"
            raise ApiError(503, "NO_DISPLAY", f"no display runs in this box ({why}); {advice}")
        time.sleep(0.002)


def _hand_out(wire: Wire, server: socket.socket, request: Request) -> None:
    with server:
        if wire.socket.family != socket.AF_UNIX:
            refusal = not_supported("descriptors pass through Unix sockets only; send Upgrade: tcp")
            return error_reply(refusal).write(wire, request)
        try:
            wire.socket.settimeout(wire.timeout)
            socket.send_fds(wire.socket, [_head("fd")], [server.fileno()])
        except OSError as error:
            raise Disconnected from error
    # Whoever looks at the display keeps this connection, so that a box that is being watched is not an idle one.
    wire.socket.settimeout(None)
    while wire.socket.recv(1024):
        pass
    return None


def _tunnel(wire: Wire, server: socket.socket) -> None:
    with server:
        wire.send(_head("tcp"))
        early = wire.take_buffered()
        if early:
            server.sendall(early)
        join(wire.socket, server)


def _head(upgrade: str) -> bytes:
    return f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: {upgrade}\r\nConnection: Upgrade\r\n\r\n".encode("ascii")
