"""Loopback ports in the box that lead to Unix sockets the host serves."""

from __future__ import annotations

import socket
import threading
import time

from .pump import join
from .settings import Bridge

MAX_CONNECTIONS = 256
FIRST_MOMENTS = 2.0
"""Seconds after the start of a box in which a service that is not there is waited for: the host serves it as soon as
it knows that the box runs, and what runs in the box may be quicker."""
KERNEL_PORT = 44771
"""Where OpenSandbox's clients see whether code can be run yet: its images have a Jupyter server there."""


def open_bridge(bridge: Bridge) -> None:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", bridge.port))
    listener.listen(128)
    threading.Thread(target=_accept, args=(listener, bridge.socket), daemon=True).start()


def open_kernel_port() -> None:
    """Let those clients see that it can; whoever has the port already may keep it."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.bind(("127.0.0.1", KERNEL_PORT))
        listener.listen(16)
    except OSError:
        listener.close()
        return
    threading.Thread(target=_turn_away, args=(listener,), daemon=True).start()


def _turn_away(listener: socket.socket) -> None:
    while True:
        try:
            listener.accept()[0].close()
        except OSError:
            threading.Event().wait(0.05)


def _accept(listener: socket.socket, path: str) -> None:
    slots = threading.BoundedSemaphore(MAX_CONNECTIONS)
    patient_until = time.monotonic() + FIRST_MOMENTS
    while True:
        slots.acquire()
        try:
            client, _ = listener.accept()
            threading.Thread(target=_carry, args=(client, path, slots, patient_until), daemon=True).start()
        except (OSError, RuntimeError):
            slots.release()
            threading.Event().wait(0.05)


def _carry(client: socket.socket, path: str, slots: threading.BoundedSemaphore, patient_until: float) -> None:
    """Dial the path anew each time: the host may have put a new socket there."""
    with client, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as host:
        try:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _dial(host, path, patient_until)
            join(client, host)
        except OSError:
            pass
        finally:
            slots.release()


def _dial(host: socket.socket, path: str, patient_until: float) -> None:
    while True:
        try:
            return host.connect(path)
        except FileNotFoundError:
            if time.monotonic() >= patient_until:
                raise
        threading.Event().wait(0.01)
