"""Loopback ports in the sandbox that forward to uplink services on Unix sockets of the host."""

from __future__ import annotations

import socket
import threading
import time

from ..http.socket_tunnel import copy_between_sockets
from ..settings import UplinkPortSettings

MAX_CONNECTIONS = 256
START_GRACE_SECONDS = 2.0
"""Seconds after the start in which a missing socket is retried: programs in the sandbox may be faster than the host."""
JUPYTER_PORT = 44771
"""Port that OpenSandbox clients probe to see whether code can run; its images have a Jupyter server there."""


def open_uplink_port(settings: UplinkPortSettings) -> None:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", settings.port))
    listener.listen(128)
    threading.Thread(target=_accept_connections, args=(listener, settings.socket_path), daemon=True).start()


def reserve_jupyter_port() -> None:
    """Accept connections on `JUPYTER_PORT`, unless another program has the port already."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.bind(("127.0.0.1", JUPYTER_PORT))
        listener.listen(16)
    except OSError:
        listener.close()
        return
    threading.Thread(target=_accept_and_close, args=(listener,), daemon=True).start()


def _accept_and_close(listener: socket.socket) -> None:
    while True:
        try:
            listener.accept()[0].close()
        except OSError:
            threading.Event().wait(0.05)


def _accept_connections(listener: socket.socket, path: str) -> None:
    slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
    retry_until = time.monotonic() + START_GRACE_SECONDS
    while True:
        slots.acquire()
        try:
            client, _ = listener.accept()
            threading.Thread(target=_forward, args=(client, path, slots, retry_until), daemon=True).start()
        except (OSError, RuntimeError):
            slots.release()
            threading.Event().wait(0.05)


def _forward(client: socket.socket, path: str, slots: threading.BoundedSemaphore, retry_until: float) -> None:
    """Forward one connection. The path is dialled each time, because the host may have replaced the socket."""
    with client, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as host:
        try:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _connect_to_host(host, path, retry_until)
            copy_between_sockets(client, host)
        except OSError:
            pass
        finally:
            slots.release()


def _connect_to_host(host: socket.socket, path: str, retry_until: float) -> None:
    while True:
        try:
            return host.connect(path)
        except FileNotFoundError:
            if time.monotonic() >= retry_until:
                raise
        threading.Event().wait(0.01)
