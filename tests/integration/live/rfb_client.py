"""A desktop viewer that can misbehave: RFB in WebSocket frames on a plain socket."""

from __future__ import annotations

import base64
import os
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Self
from urllib.parse import urlencode, urlsplit

from tests.support.server import Server

BINARY, CLOSE, PING, PONG = 2, 8, 9, 10
SHIFT, CONTROL = 0xFFE1, 0xFFE3


class UpgradeRefused(Exception):
    """The server did not open the WebSocket."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"{status}: {body}")
        self.status = status
        self.body = body


class ClosedByServer(Exception):
    """The server has closed the connection with a code and a reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason


class RfbClient:
    """One connection; everything waits for ten seconds at most."""

    def __init__(
        self,
        server: Server,
        path: str,
        *,
        key: str | None = None,
        origin: str | None = None,
        receive_buffer: int | None = None,
        **query: str,
    ) -> None:
        self.socket = socket.socket()
        self.socket.settimeout(10)
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        host = urlsplit(server.url)
        self.socket.connect((host.hostname, host.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        headers = {
            "Host": host.netloc,
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Protocol": "binary",
        }
        secret = server.key if key is None else key
        if secret:
            headers["Authorization"] = f"Bearer {secret}"
        if origin is not None:
            headers["Origin"] = origin
        self._ask(path + ("?" + urlencode(query) if query else ""), headers)
        self._left = 0
        self.width = self.height = 0

    def _ask(self, target: str, headers: Mapping[str, str]) -> None:
        lines = [f"GET {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        self.socket.sendall("\r\n".join(lines).encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = self.socket.recv(1)
            assert byte, head
            head += byte
        status = int(head.split(b" ")[1])
        if status != 101:
            body = b""
            while piece := self.socket.recv(4096):
                body += piece
            self.socket.close()
            raise UpgradeRefused(status, body.decode())
        assert b"sec-websocket-protocol: binary" in head.lower()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.socket.close()

    def frame(self, data: bytes, opcode: int = BINARY) -> bytes:
        size, mask = len(data), os.urandom(4)
        head = bytes((0x80 | opcode, 0x80 | size)) if size < 126 else struct.pack(">BBH", 0x80 | opcode, 0xFE, size)
        return head + mask + bytes(byte ^ mask[i % 4] for i, byte in enumerate(data))

    def send(self, *messages: bytes) -> None:
        """Each message in a frame of its own."""
        self.socket.sendall(b"".join(map(self.frame, messages)))

    def read(self, size: int) -> bytes:
        """Return the next `size` bytes of RFB."""
        found = b""
        while len(found) < size:
            while not self._left:
                opcode, self._left = self._head()
                if opcode != BINARY:
                    payload = self._exactly(self._left)
                    self._left = 0
                    if opcode == CLOSE:
                        raise ClosedByServer(int.from_bytes(payload[:2], "big"), payload[2:].decode())
                    assert opcode == PING, (opcode, payload)
                    self.socket.sendall(self.frame(payload, PONG))
            piece = self._exactly(min(self._left, size - len(found)))
            self._left -= len(piece)
            found += piece
        return found

    def wait_until_closed(self) -> tuple[int, str]:
        """Read until the server closes; return the close code and reason."""
        while True:
            self._exactly(self._left)
            opcode, self._left = self._head()
            if opcode == CLOSE:
                payload = self._exactly(self._left)
                self.socket.sendall(self.frame(payload[:2], CLOSE))
                return int.from_bytes(payload[:2], "big"), payload[2:].decode()

    def perform_handshake(self, *encodings: int) -> Self:
        """Perform the RFB handshake, up to the name of the display."""
        assert self.read(12) == b"RFB 003.008\n"
        self.send(b"RFB 003.008\n")
        assert 1 in self.read(self.read(1)[0])
        self.send(b"\1")
        assert self.read(4) == bytes(4)
        self.send(b"\1")
        self.width, self.height = struct.unpack(">HH", self.read(4))
        self.read(16)
        self.read(int.from_bytes(self.read(4), "big"))
        self.send(struct.pack(f">BxH{1 + len(encodings)}i", 2, 1 + len(encodings), 0, *encodings))
        return self

    def request_update(self, width: int, height: int, *, changes: bool = False) -> None:
        self.send(struct.pack(">BBHHHH", 3, changes, 0, 0, width, height))

    def fetch_pixels(self, width: int = 8, height: int = 8) -> bytes:
        """Return the pixels of the upper left corner, in the raw encoding."""
        self.request_update(width, height)
        pixels = b""
        while len(pixels) < width * height * 4:
            kind = self.read(1)[0]
            assert kind == 0, kind
            for _ in range(int.from_bytes(self.read(3)[1:], "big")):
                _, _, across, down, encoding = struct.unpack(">HHHHi", self.read(12))
                assert encoding == 0
                pixels += self.read(across * down * 4)
        return pixels

    def point(self, x: int, y: int, buttons: int = 0) -> None:
        self.send(pointer(x, y, buttons))

    def press(self, key: str | int) -> None:
        """A key down and up again."""
        number = ord(key) if isinstance(key, str) else key
        self.send(struct.pack(">BBxxI", 4, 1, number), struct.pack(">BBxxI", 4, 0, number))

    def _head(self) -> tuple[int, int]:
        first, size = self._exactly(2)
        if size == 126:
            size = int.from_bytes(self._exactly(2), "big")
        elif size == 127:
            size = int.from_bytes(self._exactly(8), "big")
        return first & 0x0F, size

    def _exactly(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            piece = self.socket.recv(size - len(found))
            if not piece:
                raise ConnectionError("the server has closed the connection")
            found += piece
        return bytes(found)


def pointer(x: int, y: int, buttons: int = 0) -> bytes:
    return struct.pack(">BBHH", 5, buttons, x, y)


@contextmanager
def open_desktop_viewer(server: Server, sandbox_id: str, viewer: str = "", **more: str) -> Iterator[RfbClient]:
    """A connected viewer of a desktop, after the handshake."""
    query = {"viewer": viewer, **more} if viewer else more
    with RfbClient(server, f"/v1/sandboxes/{sandbox_id}/desktop", **query) as made:  # type: ignore[arg-type]
        yield made.perform_handshake()
