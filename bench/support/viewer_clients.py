"""Cheap clients of desktops and terminals, so that the server dominates the measurement."""

from __future__ import annotations

import base64
import secrets
import socket
import struct
import time
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

RAW_ENCODING = 0
PIXEL_SIZE = 4
TIMEOUT = 30.0
BUFFER_SIZE = 2**20


class SocketStream:
    """Byte stream of a plain connection."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(TIMEOUT)
        self.connection = connection
        self._buffer = memoryview(bytearray(BUFFER_SIZE))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.connection.close()

    def send(self, data: bytes) -> None:
        self.connection.sendall(data)

    def read(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            piece = self._receive_some(self._buffer[: size - len(found)])
            found += piece
        return bytes(found)

    def skip(self, size: int) -> None:
        while size:
            size -= len(self._receive_some(self._buffer[:size]))

    def _receive_some(self, buffer: memoryview) -> memoryview:
        count = self.connection.recv_into(buffer)
        if not count:
            raise ConnectionError("the connection has ended")
        return buffer[:count]


class WebSocketStream(SocketStream):
    """Byte stream of the payloads of a WebSocket."""

    def __init__(self, url: str, headers: dict[str, str] | None = None, protocol: str | None = None) -> None:
        parts = urlsplit(url)
        super().__init__(socket.create_connection((parts.hostname, parts.port), TIMEOUT))
        self._unread = 0
        self.kind = 0
        """Opcode of the current message: 1 is text, 2 is binary."""
        lines = [
            f"GET {parts.path}{'?' if parts.query else ''}{parts.query} HTTP/1.1",
            f"Host: {parts.netloc}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {base64.b64encode(secrets.token_bytes(16)).decode()}",
            *(f"{name}: {value}" for name, value in (headers or {}).items()),
            *([f"Sec-WebSocket-Protocol: {protocol}"] if protocol else []),
        ]
        self.connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            piece = self.connection.recv(1)
            if not piece:
                raise ConnectionError(head.decode(errors="replace"))
            head += piece
        if not head.startswith(b"HTTP/1.1 101"):
            raise ConnectionError(head.split(b"\r\n")[0].decode(errors="replace"))

    def send(self, data: bytes, kind: int = 2) -> None:
        size = len(data)
        head = bytes([0x80 | kind]) + (bytes([0x80 | size]) if size < 126 else struct.pack(">BH", 0x80 | 126, size))
        self.connection.sendall(head + bytes(4) + data)  # A mask of zeros, which is valid.

    def skip(self, size: int) -> None:
        """Discard bytes in the kernel, so that copying them does not add to the measurement."""
        while size:
            while not self._unread:
                self._read_frame_head()
            count = self.connection.recv_into(self._buffer, min(size, self._unread, BUFFER_SIZE), socket.MSG_TRUNC)
            if not count:
                raise ConnectionError("the connection has ended")
            self._unread -= count
            size -= count

    def read_message(self) -> bytes:
        """Return the next complete message."""
        self._read_frame_head()
        return self.read(self._unread)

    def _receive_some(self, buffer: memoryview) -> memoryview:
        while not self._unread:
            self._read_frame_head()
        found = super()._receive_some(buffer[: self._unread])
        self._unread -= len(found)
        return found

    def _read_frame_head(self) -> None:
        first, second = self._read_exactly(2)
        size = second & 127
        if size > 125:
            size = int.from_bytes(self._read_exactly(2 if size == 126 else 8))
        kind = first & 15
        if kind == 8:
            raise ConnectionError("the server has closed the connection")
        if kind in (9, 10):
            content = self._read_exactly(size)
            if kind == 9:
                self.send(content, 10)
            return self._read_frame_head()
        self.kind = kind or self.kind
        self._unread = size
        return None

    def _read_exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            piece = self.connection.recv(size - len(found))
            if not piece:
                raise ConnectionError("the connection has ended")
            found += piece
        return found


class RfbViewer:
    """An RFB viewer without compression."""

    def __init__(self, stream: SocketStream) -> None:
        self.stream = stream
        assert stream.read(12).startswith(b"RFB 003.")
        stream.send(b"RFB 003.008\n")
        stream.skip(stream.read(1)[0])
        stream.send(b"\1")
        assert stream.read(4) == bytes(4)
        stream.send(b"\1")
        self.width, self.height = struct.unpack(">HH", stream.read(4))
        stream.skip(16)
        stream.skip(int.from_bytes(stream.read(4)))
        stream.send(struct.pack(">BBHi", 2, 0, 1, RAW_ENCODING))

    def read_frame(self) -> int:
        """Request the whole screen and return its size in bytes."""
        self._request_frame()
        return self._receive_frame()

    def read_frames(self, seconds: float) -> tuple[int, float]:
        """Receive frames for some seconds; return the bytes and the seconds.

        Each frame is requested as soon as the previous one begins to arrive, so that the display never waits. An
        earlier request would be merged with the previous one.
        """
        self._request_frame()
        began, size = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            size += self._receive_frame(request_next=True)
        took = time.perf_counter() - began
        self._receive_frame()
        return size, took

    def _request_frame(self) -> None:
        self.stream.send(struct.pack(">BBHHHH", 3, 0, 0, 0, self.width, self.height))

    def _receive_frame(self, request_next: bool = False) -> int:
        seen = 0
        while seen < self.width * self.height * PIXEL_SIZE:
            kind = self.stream.read(1)[0]
            if kind == 2:
                continue
            if kind == 3:
                self.stream.skip(3)
                self.stream.skip(int.from_bytes(self.stream.read(4)))
                continue
            assert kind == 0, kind
            if request_next:
                self._request_frame()
                request_next = False
            for _ in range(int.from_bytes(self.stream.read(3)[1:])):
                _, _, width, height, encoding = struct.unpack(">HHHHi", self.stream.read(12))
                assert encoding == RAW_ENCODING, encoding
                self.stream.skip(width * height * PIXEL_SIZE)
                seen += width * height * PIXEL_SIZE
        return seen


def wait_for_window_manager(path: str) -> None:
    """Wait until a window manager owns the screen of the X display with its socket at a path."""
    with connect_unix(path) as stream:
        stream.send(struct.pack("<BxHHHHxx", ord("l"), 11, 0, 0, 0))
        answered, *_, size = struct.unpack("<BBHHH", stream.read(8))
        assert answered == 1, answered
        setup = stream.read(4 * size)
        vendor, formats = struct.unpack_from("<HxxxB", setup, 16)
        (root,) = struct.unpack_from("<I", setup, 32 + (vendor + 3) // 4 * 4 + 8 * formats)
        name = b"_NET_SUPPORTING_WM_CHECK"
        stream.send(struct.pack("<BxHHxx", 16, 2 + len(name) // 4, len(name)) + name)
        (atom,) = struct.unpack_from("<I", stream.read(32), 8)
        deadline = time.monotonic() + TIMEOUT
        while True:
            stream.send(struct.pack("<BxHIIIII", 20, 6, root, atom, 0, 0, 1))
            response = stream.read(32)
            length, kind = struct.unpack_from("<II", response, 4)
            stream.skip(4 * length)
            if kind:
                return
            assert time.monotonic() < deadline, "no window manager has come"
            time.sleep(0.002)


def connect_unix(path: str) -> SocketStream:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    return SocketStream(connection)
