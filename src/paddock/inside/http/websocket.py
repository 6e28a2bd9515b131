"""Server side of WebSocket (RFC 6455), strict about client frames."""

from __future__ import annotations

import struct
import threading
from binascii import a2b_base64, b2a_base64
from socket import SHUT_RD

from ..errors import ApiError
from .buffered_socket import BufferedSocket, PeerDisconnected
from .http11 import IncomingRequest, render_response_head

MAX_MESSAGE = 4 * 1024 * 1024
PING_INTERVAL = 30.0

TEXT, BINARY, CLOSE, PING, PONG = 0x1, 0x2, 0x8, 0x9, 0xA
NORMAL, PROTOCOL_ERROR, BAD_DATA, TOO_BIG = 1000, 1002, 1007, 1009

_CONTINUATION = 0x0
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_VALID_CLOSE = frozenset({1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011})


class WebSocketClosed(Exception):
    """The connection has ended; `code` is the peer's close code or the one for its protocol error."""

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(f"{code} {reason}")
        self.code = code
        self.reason = reason


def check_websocket_upgrade(request: IncomingRequest) -> None:
    """Raise `ApiError` unless the request is a valid opening handshake."""
    tokens = [token.strip().lower() for token in request.header("connection").split(",")]
    if request.header("upgrade").lower() != "websocket" or "upgrade" not in tokens:
        raise ApiError(426, "UPGRADE_REQUIRED", "this route is a WebSocket: send Upgrade: websocket")
    try:
        key = a2b_base64(request.header("sec-websocket-key"))
    except ValueError:
        key = b""
    if request.header("sec-websocket-version") != "13" or len(key) != 16:
        raise ApiError(400, "BAD_REQUEST", "the WebSocket handshake needs version 13 and a 16-byte key")


class WebSocket:
    """A WebSocket connection; `send` may be called from any thread."""

    def __init__(self, client: BufferedSocket, request: IncomingRequest) -> None:
        from hashlib import sha1

        self._client = client
        self._lock = threading.Lock()
        self._closing = False
        accept = b2a_base64(sha1(request.header("sec-websocket-key").encode() + _GUID).digest(), newline=False).decode()
        head = render_response_head(101, [("Upgrade", "websocket"), ("Sec-WebSocket-Accept", accept)], keep_alive=True)
        client.send(head.replace(b"Connection: keep-alive", b"Connection: Upgrade"))
        client.timeout = 2 * PING_INTERVAL

    def receive(self) -> tuple[int, bytes]:
        """Return the kind and content of the next message.

        Raises WebSocketClosed at the end of the connection, whichever side closed it.
        """
        try:
            return self._next_message()
        except PeerDisconnected:
            raise WebSocketClosed(1006, "the connection was lost") from None
        except WebSocketClosed as closed:
            self.close(closed.code if closed.code in _VALID_CLOSE or closed.code >= 3000 else NORMAL)
            raise

    def send(self, kind: int, payload: bytes) -> None:
        size = len(payload)
        if size < 126:
            head = struct.pack("!BB", 0x80 | kind, size)
        elif size < 65536:
            head = struct.pack("!BBH", 0x80 | kind, 126, size)
        else:
            head = struct.pack("!BBQ", 0x80 | kind, 127, size)
        with self._lock:
            if self._closing:
                raise PeerDisconnected
            self._client.send(head + payload)

    def close(self, code: int = NORMAL, reason: str = "", lock_timeout: float = 5.0) -> None:
        """Send a close frame once; abort the connection if a stalled writer holds the lock."""
        if not self._lock.acquire(timeout=lock_timeout):
            return self._client.abort()
        try:
            if not self._closing:
                self._closing = True
                payload = struct.pack("!H", code) + reason.encode()[:120]
                self._client.send(struct.pack("!BB", 0x80 | CLOSE, len(payload)) + payload)
        except PeerDisconnected:
            pass
        finally:
            self._lock.release()

    def stop_receiving(self) -> None:
        """Make `receive` return, after a close that needs no reply."""
        try:
            self._client.socket.shutdown(SHUT_RD)
        except OSError:
            pass

    def abort(self) -> None:
        self._client.abort()

    def _next_message(self) -> tuple[int, bytes]:
        kind, parts, size = 0, [], 0
        while True:
            final, opcode, payload = self._read_frame(MAX_MESSAGE - size)
            if opcode >= CLOSE:
                self._control(opcode, payload)
                continue
            if (opcode == _CONTINUATION) != bool(kind):
                raise WebSocketClosed(PROTOCOL_ERROR, "a fragment is out of order")
            kind = kind or opcode
            parts.append(payload)
            size += len(payload)
            if final:
                message = b"".join(parts)
                if kind == TEXT:
                    _check_text(message)
                return kind, message

    def _read_frame(self, limit: int) -> tuple[bool, int, bytes]:
        first, second = self._client.read_exactly(2)
        opcode, size = first & 0x0F, second & 0x7F
        if first & 0x70 or opcode not in (_CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG):
            raise WebSocketClosed(PROTOCOL_ERROR, "a frame has reserved bits or an unknown opcode")
        if not second & 0x80:
            raise WebSocketClosed(PROTOCOL_ERROR, "frames from clients must be masked")
        if opcode >= CLOSE and (size > 125 or not first & 0x80):
            raise WebSocketClosed(PROTOCOL_ERROR, "a control frame is too long or fragmented")
        if size == 126:
            size = struct.unpack("!H", self._client.read_exactly(2))[0]
        elif size == 127:
            size = struct.unpack("!Q", self._client.read_exactly(8))[0]
        if opcode < CLOSE and size > limit:
            raise WebSocketClosed(TOO_BIG, f"messages are limited to {MAX_MESSAGE} bytes")
        mask = self._client.read_exactly(4)
        return bool(first & 0x80), opcode, unmask_websocket_payload(self._client.read_exactly(size), mask)

    def _control(self, opcode: int, payload: bytes) -> None:
        if opcode == PING:
            self.send(PONG, payload)
        elif opcode == CLOSE:
            if not payload:
                raise WebSocketClosed(NORMAL)
            code = struct.unpack("!H", payload[:2])[0] if len(payload) >= 2 else 0
            if code not in _VALID_CLOSE and not 3000 <= code < 5000:
                raise WebSocketClosed(PROTOCOL_ERROR, "a close code is not valid")
            _check_text(payload[2:])
            raise WebSocketClosed(code, payload[2:].decode())


def _check_text(data: bytes) -> None:
    try:
        data.decode()
    except UnicodeDecodeError:
        raise WebSocketClosed(BAD_DATA, "a text is not UTF-8") from None


def unmask_websocket_payload(data: bytes, mask: bytes) -> bytes:
    if not data:
        return b""
    repeated = (mask * (len(data) // 4 + 1))[: len(data)]
    return (int.from_bytes(data, "little") ^ int.from_bytes(repeated, "little")).to_bytes(len(data), "little")
