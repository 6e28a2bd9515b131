"""Accepts the sandbox's connections to other hosts and passes them to the server."""

from __future__ import annotations

import errno
import json
import socket
import struct
import time
from collections import deque

from ..settings import NetworkSettings
from .name_addresses import NameAddresses

VERSION = 1
MAX_WAITING = 1024
START_GRACE_SECONDS = 2.0
"""Seconds after the daemon's start in which a missing uplink socket is retried."""
BUSY_SECONDS = 10.0
"""Seconds a connection waits while the server accepts no more."""
RETRY_SECONDS = 0.01
SO_ORIGINAL_DST = 80
"""Socket option with the target before the redirection; for IPv6 it has the same number."""
_IPV4_TARGET = struct.Struct(">2xH4s8x")
_IPV6_TARGET = struct.Struct(">2xH4x16s4x")
_BUSY = {errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ETOOMANYREFS}


class ConnectionAcceptor:
    """Passes each accepted connection with its target; resets connections that the server cannot take."""

    def __init__(self, settings: NetworkSettings, names: NameAddresses, started: float) -> None:
        self._settings = settings
        self._names = names
        self._grace_end = started + START_GRACE_SECONDS
        self._waiting: deque[tuple[socket.socket, bytes, float]] = deque()

    @property
    def retry_seconds(self) -> float | None:
        return RETRY_SECONDS if self._waiting else None

    def accept_connection(self, listener: socket.socket) -> None:
        connection = listener.accept()[0]
        target = self._find_target(connection)
        if target is None or len(self._waiting) >= MAX_WAITING:
            return reset_connection(connection)
        address, port = target
        name = None
        if connection.family == socket.AF_INET:
            name = self._names.name_of(int.from_bytes(socket.inet_aton(address), "big"))
        document = {"version": VERSION, "name": name, "address": address, "port": port}
        line = json.dumps(document).encode() + b"\n"
        self._waiting.append((connection, line, time.monotonic() + BUSY_SECONDS))
        if len(self._waiting) == 1:
            self.pass_waiting()
        return None

    def pass_waiting(self) -> None:
        """Pass waiting connections in order, until the server is busy."""
        while self._waiting:
            connection, line, deadline = self._waiting[0]
            try:
                self._pass(connection, line)
                connection.close()
            except OSError as error:
                if time.monotonic() < self._last_retry(error, deadline):
                    return
                reset_connection(connection)
            self._waiting.popleft()

    def _pass(self, connection: socket.socket, line: bytes) -> None:
        """Send a connection to the server; it is dialled each time, because it may have restarted."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as uplink:
            uplink.setblocking(False)
            uplink.connect(self._settings.socket_path)
            socket.send_fds(uplink, [line], [connection.fileno()])

    def _last_retry(self, error: OSError, deadline: float) -> float:
        if isinstance(error, FileNotFoundError):
            return self._grace_end
        return deadline if error.errno in _BUSY else 0.0

    def _find_target(self, connection: socket.socket) -> tuple[str, int] | None:
        """Return the address and port that the program asked for; None if it asked for the listener itself."""
        family = connection.family
        try:
            if not self._settings.redirected:
                address, port = connection.getsockname()[:2]
                return None if address == "::1" or address.startswith("127.") else (address, port)
            if family == socket.AF_INET:
                option = connection.getsockopt(socket.IPPROTO_IP, SO_ORIGINAL_DST, _IPV4_TARGET.size)
                port, packed = _IPV4_TARGET.unpack(option)
            else:
                option = connection.getsockopt(socket.IPPROTO_IPV6, SO_ORIGINAL_DST, _IPV6_TARGET.size)
                port, packed = _IPV6_TARGET.unpack(option)
        except OSError:
            return None
        return socket.inet_ntop(family, packed), port


def reset_connection(connection: socket.socket) -> None:
    """Close a connection so that its other end sees a reset."""
    try:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    finally:
        connection.close()
