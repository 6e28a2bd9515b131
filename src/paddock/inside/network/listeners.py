"""Listening sockets for the sandbox's connections and DNS queries.

They open at the start, and a thread serves them from the first connection or query on: most sandboxes need none.
"""

from __future__ import annotations

import socket
import sys
import threading
import time

from ..settings import NetworkSettings

BACKLOG = 1024
DIRECT_PORTS = (80, 443)
"""Ports that work without redirection."""
DIRECT_DNS_PORT = 53


class NetworkListeners:
    """The open sockets. A port that is in use is left out, since a sandbox may refuse itself a network."""

    def __init__(self, settings: NetworkSettings) -> None:
        self._settings = settings
        self.opened = time.monotonic()
        self.connections: list[socket.socket] = []
        self.dns_datagrams: list[socket.socket] = []
        self.dns_connections: list[socket.socket] = []
        redirected = settings.redirected
        dns_port = settings.dns_port if redirected else DIRECT_DNS_PORT
        for family, loopback, everywhere in (
            (socket.AF_INET, "127.0.0.1", "0.0.0.0"),
            (socket.AF_INET6, "::1", "::"),
        ):
            for port in (settings.connection_port,) if redirected else DIRECT_PORTS:
                address = (loopback if redirected else everywhere, port)
                self._listen(self.connections, family, socket.SOCK_STREAM, address)
            self._listen(self.dns_datagrams, family, socket.SOCK_DGRAM, (loopback, dns_port))
            self._listen(self.dns_connections, family, socket.SOCK_STREAM, (loopback, dns_port))

    @property
    def descriptors(self) -> list[int]:
        return [each.fileno() for each in (*self.connections, *self.dns_datagrams, *self.dns_connections)]

    def start_thread(self) -> bool:
        """Serve the sockets in a thread; False if the sandbox is at its limit of processes."""
        try:
            threading.Thread(target=self._serve, daemon=True).start()
        except RuntimeError:
            return False
        return True

    def _serve(self) -> None:
        from .network_thread import NetworkThread

        NetworkThread(self._settings, self).serve_forever()

    def _listen(
        self, opened: list[socket.socket], family: int, kind: socket.SocketKind, address: tuple[str, int]
    ) -> None:
        try:
            listener = socket.socket(family, kind)
        except OSError:
            return  # The kernel has no IPv6.
        try:
            listener.setblocking(False)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            if kind == socket.SOCK_STREAM:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            if kind == socket.SOCK_STREAM:
                listener.listen(BACKLOG)
        except OSError as error:
            print(
                f"inside: network: cannot listen on {address[0]} port {address[1]}: {error.strerror}", file=sys.stderr
            )
            listener.close()
        else:
            opened.append(listener)
