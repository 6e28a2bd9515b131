"""Cheap clients of desktops and terminals, so that the server dominates the measurement."""

from __future__ import annotations

import base64
import secrets
import socket
import struct
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

RAW = 0
PIXEL = 4
PATIENCE = 30.0
SCRATCH = 2**20


class Stream:
    """Bytes of a plain connection."""

    def __init__(self, link: socket.socket) -> None:
        link.settimeout(PATIENCE)
        self.link = link
        self._scratch = memoryview(bytearray(SCRATCH))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.link.close()

    def send(self, data: bytes) -> None:
        self.link.sendall(data)

    def read(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            piece = self._some(self._scratch[: size - len(found)])
            found += piece
        return bytes(found)

    def skip(self, size: int) -> None:
        while size:
            size -= len(self._some(self._scratch[:size]))

    def _some(self, room: memoryview) -> memoryview:
        count = self.link.recv_into(room)
        if not count:
            raise ConnectionError("the connection has ended")
        return room[:count]


class WebStream(Stream):
    """The bytes within the messages of a WebSocket."""

    def __init__(self, url: str, headers: dict[str, str] | None = None, protocol: str | None = None) -> None:
        parts = urlsplit(url)
        super().__init__(socket.create_connection((parts.hostname, parts.port), PATIENCE))
        self._left = 0
        self.kind = 0
        """Of the message that is being read: 1 is text, 2 is bytes."""
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
        self.link.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            piece = self.link.recv(1)
            if not piece:
                raise ConnectionError(head.decode(errors="replace"))
            head += piece
        if not head.startswith(b"HTTP/1.1 101"):
            raise ConnectionError(head.split(b"\r\n")[0].decode(errors="replace"))

    def send(self, data: bytes, kind: int = 2) -> None:
        size = len(data)
        head = bytes([0x80 | kind]) + (bytes([0x80 | size]) if size < 126 else struct.pack(">BH", 0x80 | 126, size))
        self.link.sendall(head + bytes(4) + data)  # Masked with nothing, which is a mask as well.

    def skip(self, size: int) -> None:
        """Let go of bytes within the kernel: a client that copied them would be measured along with the server."""
        while size:
            while not self._left:
                self._head()
            count = self.link.recv_into(self._scratch, min(size, self._left, SCRATCH), socket.MSG_TRUNC)
            if not count:
                raise ConnectionError("the connection has ended")
            self._left -= count
            size -= count

    def message(self) -> bytes:
        """The next message, whole."""
        self._head()
        return self.read(self._left)

    def _some(self, room: memoryview) -> memoryview:
        while not self._left:
            self._head()
        found = super()._some(room[: self._left])
        self._left -= len(found)
        return found

    def _head(self) -> None:
        first, second = self._exactly(2)
        size = second & 127
        if size > 125:
            size = int.from_bytes(self._exactly(2 if size == 126 else 8))
        kind = first & 15
        if kind == 8:
            raise ConnectionError("the server has closed the connection")
        if kind in (9, 10):
            content = self._exactly(size)
            if kind == 9:
                self.send(content, 10)
            return self._head()
        self.kind = kind or self.kind
        self._left = size
        return None

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            piece = self.link.recv(size - len(found))
            if not piece:
                raise ConnectionError("the connection has ended")
            found += piece
        return found


class Screen:
    """An RFB viewer without compression: as many bytes as pixels."""

    def __init__(self, stream: Stream) -> None:
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
        stream.send(struct.pack(">BBHi", 2, 0, 1, RAW))

    def frame(self) -> int:
        """Have the whole screen sent, and say how many bytes that was."""
        self._ask()
        return self._take()

    def frames(self, seconds: float) -> tuple[int, float]:
        """Look for a while; how many bytes came, and how long it took.

        Each frame is asked for as soon as the last has begun to come, so that the display never waits for us. Were
        it asked for earlier, the display would take both for one.
        """
        self._ask()
        began, size = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            size += self._take(ask=True)
        took = time.perf_counter() - began
        self._take()
        return size, took

    def _ask(self) -> None:
        self.stream.send(struct.pack(">BBHHHH", 3, 0, 0, 0, self.width, self.height))

    def _take(self, ask: bool = False) -> int:
        seen = 0
        while seen < self.width * self.height * PIXEL:
            kind = self.stream.read(1)[0]
            if kind == 2:
                continue
            if kind == 3:
                self.stream.skip(3)
                self.stream.skip(int.from_bytes(self.stream.read(4)))
                continue
            assert kind == 0, kind
            if ask:
                self._ask()
                ask = False
            for _ in range(int.from_bytes(self.stream.read(3)[1:])):
                _, _, width, height, encoding = struct.unpack(">HHHHi", self.stream.read(12))
                assert encoding == RAW, encoding
                self.stream.skip(width * height * PIXEL)
                seen += width * height * PIXEL
        return seen


def until_managed(path: str) -> None:
    """Wait until a window manager has taken the screen of the display that listens for X clients at a path."""
    with unix(path) as stream:
        stream.send(struct.pack("<BxHHHHxx", ord("l"), 11, 0, 0, 0))
        answered, *_, size = struct.unpack("<BBHHH", stream.read(8))
        assert answered == 1, answered
        setup = stream.read(4 * size)
        vendor, formats = struct.unpack_from("<HxxxB", setup, 16)
        (root,) = struct.unpack_from("<I", setup, 32 + (vendor + 3) // 4 * 4 + 8 * formats)
        name = b"_NET_SUPPORTING_WM_CHECK"
        stream.send(struct.pack("<BxHHxx", 16, 2 + len(name) // 4, len(name)) + name)
        (atom,) = struct.unpack_from("<I", stream.read(32), 8)
        deadline = time.monotonic() + PATIENCE
        while True:
            stream.send(struct.pack("<BxHIIIII", 20, 6, root, atom, 0, 0, 1))
            said = stream.read(32)
            length, kind = struct.unpack_from("<II", said, 4)
            stream.skip(4 * length)
            if kind:
                return
            assert time.monotonic() < deadline, "no window manager has come"
            time.sleep(0.002)


def unix(path: str) -> Stream:
    link = socket.socket(socket.AF_UNIX)
    link.connect(path)
    return Stream(link)


def own_seconds(process: int) -> float:
    """Return CPU seconds of a process's current threads; clock ticks would be too coarse."""
    used = 0
    with suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            with suppress(OSError):
                used += int((task / "schedstat").read_text().split()[0])
    return used / 1e9


def tree_seconds(process: int) -> float:
    """The same of a process and of all that came from it."""
    return own_seconds(process) + sum(map(tree_seconds, children(process)))


def children(process: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found
