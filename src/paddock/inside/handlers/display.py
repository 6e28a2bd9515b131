"""Handler that connects a viewer to the sandbox's RFB display."""

from __future__ import annotations

import socket
import time

from ..daemon import Daemon
from ..errors import ApiError, not_supported_error
from ..http.buffered_socket import PeerDisconnected
from ..http.http11 import BufferedSocket, HttpReply, IncomingRequest, RawConnectionReply, error_reply
from ..http.socket_tunnel import copy_between_sockets
from ..services.display_startup import DISPLAY_SERVICE, display_socket_path

START_TIMEOUT = 10.0
"""Seconds to wait for a display that is starting."""
RFB_VERSION_TIMEOUT = 5.0
"""Seconds to wait for the RFB version; a display that is shutting down accepts connections and stays silent."""


def connect_viewer_to_display(daemon: Daemon, request: IncomingRequest) -> HttpReply:
    """Connect to the display: `Upgrade: fd` passes the descriptor to the client, `Upgrade: tcp` forwards bytes."""
    upgrade = request.header("upgrade").lower()
    if upgrade not in ("fd", "tcp"):
        raise ApiError(426, "UPGRADE_REQUIRED", "send Connection: Upgrade and Upgrade: fd, or Upgrade: tcp")
    server = _connect_to_display(daemon)
    if upgrade == "tcp":
        return RawConnectionReply(lambda client: _tunnel(client, server))
    return RawConnectionReply(lambda client: _pass_descriptor(client, server, request))


def _connect_to_display(daemon: Daemon) -> socket.socket:
    """Connect to the display, waiting for one that is starting or restarting."""
    path = display_socket_path(daemon.environment)
    deadline = time.monotonic() + START_TIMEOUT
    while True:
        if daemon.services.is_wanted(DISPLAY_SERVICE):
            daemon.services.wait_ready([DISPLAY_SERVICE], max(0.0, deadline - time.monotonic()))
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            server.settimeout(RFB_VERSION_TIMEOUT)
            server.connect(path)
            if server.recv(1, socket.MSG_PEEK):
                return server
            reason = "it has just exited"
        except OSError as error:
            reason = error.strerror or "it sends no greeting"
        server.close()
        if time.monotonic() >= deadline or not daemon.services.is_wanted(DISPLAY_SERVICE):
            advice = "start it, or use an image with a screen"
            raise ApiError(503, "NO_DISPLAY", f"no display runs in this sandbox ({reason}); {advice}")
        time.sleep(0.002)


def _pass_descriptor(client: BufferedSocket, server: socket.socket, request: IncomingRequest) -> None:
    with server:
        if client.socket.family != socket.AF_UNIX:
            refusal = not_supported_error("descriptors pass through Unix sockets only; send Upgrade: tcp")
            return error_reply(refusal).write(client, request)
        try:
            client.socket.settimeout(client.timeout)
            socket.send_fds(client.socket, [_upgrade_head("fd")], [server.fileno()])
        except OSError as error:
            raise PeerDisconnected from error
    # Keep the request open while the viewer is connected, so that a watched sandbox does not count as idle.
    client.socket.settimeout(None)
    while client.socket.recv(1024):
        pass
    return None


def _tunnel(client: BufferedSocket, server: socket.socket) -> None:
    with server:
        client.send(_upgrade_head("tcp"))
        early = client.take_buffered()
        if early:
            server.sendall(early)
        copy_between_sockets(client.socket, server)


def _upgrade_head(upgrade: str) -> bytes:
    return f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: {upgrade}\r\nConnection: Upgrade\r\n\r\n".encode("ascii")
