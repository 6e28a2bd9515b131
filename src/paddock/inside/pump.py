"""Joins two sockets until both have said all they had to say."""

from __future__ import annotations

import socket
import threading

BLOCK = 64 * 1024


def join(left: socket.socket, right: socket.socket) -> None:
    """Copy both ways; each side's end of stream is passed on, then both are closed by the caller."""
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
