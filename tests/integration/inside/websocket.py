"""A minimal WebSocket client that can violate the protocol on purpose."""

from __future__ import annotations

import base64
import json
import os
import socket
import struct
from typing import Any

from .daemon import TOKEN

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


class WebSocketClient:
    def __init__(self, raw: socket.socket, path: str, **headers: str) -> None:
        self._raw = raw
        fields = {
            "Host": "box",
            "X-EXECD-ACCESS-TOKEN": TOKEN,
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items() if value), "", ""]
        raw.sendall("\r\n".join(lines).encode())
        self._stream = raw.makefile("rb")
        self.status = int(self._stream.readline().split()[1])
        while self._stream.readline().strip():
            pass

    def __enter__(self) -> WebSocketClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()
        self._raw.close()

    def send_raw(self, data: bytes) -> None:
        self._raw.sendall(data)

    def send(self, opcode: int, payload: bytes, final: bool = True) -> None:
        mask = os.urandom(4)
        size = len(payload)
        head = bytes([(0x80 if final else 0) | opcode])
        if size < 126:
            head += bytes([0x80 | size])
        elif size < 65536:
            head += struct.pack("!BH", 0x80 | 126, size)
        else:
            head += struct.pack("!BQ", 0x80 | 127, size)
        self._raw.sendall(head + mask + bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload)))

    def send_json(self, **document: Any) -> None:
        self.send(TEXT, json.dumps(document).encode())

    def type(self, text: str) -> None:
        self.send(BINARY, b"\0" + text.encode())

    def receive(self) -> tuple[int, bytes]:
        first, second = self._stream.read(2)
        size = second & 0x7F
        if size == 126:
            (size,) = struct.unpack("!H", self._stream.read(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", self._stream.read(8))
        return first & 0x0F, self._stream.read(size)

    def receive_json(self) -> dict[str, Any]:
        opcode, payload = self.receive()
        assert opcode == TEXT, (opcode, payload)
        document: dict[str, Any] = json.loads(payload)
        return document

    def close_code(self) -> int:
        """Read on until the server closes, and return its reason."""
        while True:
            opcode, payload = self.receive()
            if opcode == CLOSE:
                code: int = struct.unpack("!H", payload[:2])[0]
                return code

    def output_until(self, expected: bytes) -> bytes:
        """Collect stdout until `expected` shows up in it."""
        collected = b""
        while expected not in collected:
            opcode, payload = self.receive()
            if opcode == BINARY and payload[:1] in (b"\x01", b"\x03"):
                collected += payload[1:] if payload[:1] == b"\x01" else payload[9:]
        return collected
