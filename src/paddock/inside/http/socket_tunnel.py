"""Copies bytes between two sockets until both sides have closed."""

from __future__ import annotations

import socket
import threading

BLOCK = 64 * 1024


def copy_between_sockets(left: socket.socket, right: socket.socket) -> None:
    """Copy both ways and forward each side's end of stream; the caller closes both sockets."""
    for side in (left, right):
        side.settimeout(None)
    backward = threading.Thread(target=_copy, args=(right, left), daemon=True)
    backward.start()
    _copy(left, right)
    backward.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(BLOCK):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for side in (source, target):
            try:
                side.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
