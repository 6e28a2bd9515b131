"""A socket with buffered reads under a deadline, and writes with a timeout."""

from __future__ import annotations

import select
import socket
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO

BLOCK = 256 * 1024


class PeerDisconnected(Exception):
    """The peer closed, stalled or reset the connection."""


class BufferedSocket:
    """A socket with a read buffer; every read and write has a timeout."""

    def __init__(self, sock: socket.socket, timeout: float = 60.0) -> None:
        self.socket = sock
        self.timeout = timeout
        self._buffer = b""
        sock.settimeout(timeout)

    def wait_for_data(self, idle_timeout: float) -> bool:
        """Wait for the first byte of a request; False if the peer closed or sent nothing in time."""
        if self._buffer:
            return True
        try:
            self._buffer = self._receive(time.monotonic() + idle_timeout)
        except PeerDisconnected:
            return False
        return bool(self._buffer)

    def read_until(self, delimiter: bytes, limit: int, deadline: float) -> bytes | None:
        """Return the bytes before `delimiter`, or None if it does not follow within `limit` bytes."""
        searched = 0
        while True:
            end = self._buffer.find(delimiter, searched)
            if 0 <= end <= limit:
                found, self._buffer = self._buffer[:end], self._buffer[end + len(delimiter) :]
                return found
            if end > limit or len(self._buffer) > limit + len(delimiter):
                return None
            searched = max(0, len(self._buffer) - len(delimiter) + 1)
            more = self._receive(deadline)
            if not more:
                raise PeerDisconnected
            self._buffer += more

    def read_some(self, limit: int = BLOCK) -> bytes:
        """Return 1 to `limit` bytes, as soon as there are any."""
        if self._buffer:
            data, self._buffer = self._buffer[:limit], self._buffer[limit:]
            return data
        data = self._receive(time.monotonic() + self.timeout, min(limit, BLOCK))
        if not data:
            raise PeerDisconnected
        return data

    def read_exactly(self, size: int) -> bytes:
        parts = []
        while size > 0:
            data = self.read_some(size)
            size -= len(data)
            parts.append(data)
        return b"".join(parts)

    @property
    def buffered(self) -> bool:
        """True if received bytes have not been read yet."""
        return bool(self._buffer)

    @property
    def readable(self) -> bool:
        """True if received bytes wait in the buffer or in the socket, or the peer has closed."""
        poller = select.poll()
        poller.register(self.socket, select.POLLIN)
        return self.buffered or bool(poller.poll(0))

    def shut_down_reading(self) -> None:
        """Let a thread that waits for data see the end of the connection."""
        try:
            self.socket.shutdown(socket.SHUT_RD)
        except OSError:
            pass

    def take_buffered(self) -> bytes:
        data, self._buffer = self._buffer, b""
        return data

    def stays_connected(self, seconds: float) -> bool:
        """Wait up to `seconds`; False as soon as the peer closes."""
        poller = select.poll()
        poller.register(self.socket, select.POLLIN)
        if not poller.poll(seconds * 1000):
            return True
        try:
            return bool(self.socket.recv(1, socket.MSG_PEEK))
        except OSError:
            return False

    def abort(self) -> None:
        """Shut the connection down, so that the peer cannot take a truncated reply for a complete one."""
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def send(self, data: bytes) -> None:
        try:
            self.socket.settimeout(self.timeout)
            self.socket.sendall(data)
        except OSError as error:
            raise PeerDisconnected from error

    def send_file(self, stream: IO[bytes], offset: int, count: int) -> int:
        """Send bytes of a file with sendfile; return how many there were."""
        try:
            self.socket.settimeout(self.timeout)
            return self.socket.sendfile(stream, offset, count)
        except OSError as error:
            raise PeerDisconnected from error

    def _receive(self, deadline: float, limit: int = 16 * 1024) -> bytes:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise PeerDisconnected
        try:
            self.socket.settimeout(remaining)
            return self.socket.recv(limit)
        except OSError as error:
            raise PeerDisconnected from error


def close_gracefully(sock: socket.socket) -> None:
    """Close a socket without losing bytes just sent to a peer that is still sending."""
    try:
        sock.shutdown(socket.SHUT_WR)
        sock.settimeout(0.2)
        for _ in range(64):
            if not sock.recv(64 * 1024):
                break
    except OSError:
        pass
    sock.close()
