"""Copy bytes between two sockets with back-pressure, on an event loop.

One of the sockets belongs to a sandbox, which keeps access to it and can change its flags. So no call relies on
non-blocking mode: every read and write passes `MSG_DONTWAIT`.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable

CHUNK = 64 * 1024
"""Bytes read at a time, and the most that one direction buffers."""
_RESET = struct.pack("ii", 1, 0)
_NO_LINGER = struct.pack("ii", 0, 0)
_scratch = bytearray(CHUNK)
"""Shared by all connections, because all run on one thread."""


class SocketPump:
    """Copies one direction until the source ends, then shuts the sink down for writing."""

    def __init__(
        self,
        source: socket.socket,
        sink: socket.socket,
        on_bytes: Callable[[int], None],
        on_end: Callable[[OSError | None], None],
    ) -> None:
        """`on_bytes` is called with the count of copied bytes, `on_end` once, with the error if there was one."""
        self._loop = asyncio.get_running_loop()
        self._source = source
        self._sink = sink
        self._on_bytes = on_bytes
        self._on_end = on_end
        self._pending = b""
        self._ended = False

    def start(self, first: bytes = b"") -> None:
        """Start copying; `first` was read from the source already."""
        self._pending = first
        if first:
            self._on_writable()
        else:
            self._loop.add_reader(self._source.fileno(), self._on_readable)

    def stop(self) -> None:
        """Stop copying; neither socket is closed."""
        if not self._ended:
            self._ended = True
            self._loop.remove_reader(self._source.fileno())
            if self._pending:
                self._loop.remove_writer(self._sink.fileno())

    def _on_readable(self) -> None:
        """Copy one chunk, so that all connections get their turn."""
        try:
            count = self._source.recv_into(_scratch, CHUNK, socket.MSG_DONTWAIT)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._end(error)
            return
        if count == 0:
            self._end(None)
            return
        self._on_bytes(count)
        sent = self._send(memoryview(_scratch)[:count])
        if sent is None or sent == count:
            return
        self._pending = bytes(memoryview(_scratch)[sent:count])
        self._loop.remove_reader(self._source.fileno())
        self._loop.add_writer(self._sink.fileno(), self._on_writable)

    def _on_writable(self) -> None:
        sent = self._send(self._pending)
        if sent is None:
            return
        self._pending = self._pending[sent:]
        if self._pending:
            self._loop.add_writer(self._sink.fileno(), self._on_writable)
        else:
            self._loop.remove_writer(self._sink.fileno())
            self._loop.add_reader(self._source.fileno(), self._on_readable)

    def _send(self, data: bytes | memoryview) -> int | None:
        """Return how many bytes the sink took, or `None` after an error, which ends the pump."""
        try:
            return self._sink.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            self._end(error)
            return None

    def _end(self, error: OSError | None) -> None:
        self.stop()
        if error is None:
            try:
                self._sink.shutdown(socket.SHUT_WR)
            except OSError:
                pass
        self._on_end(error)


async def wait_readable(descriptor: int, timeout: float) -> bool:
    """Wait until a descriptor is readable; return False after the time-out."""
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()

    def set_readable() -> None:
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(descriptor, set_readable)
    try:
        async with asyncio.timeout(timeout):
            await readable
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(descriptor)
    return True


async def read_available(source: socket.socket, timeout: float) -> bytes | None:
    """Return bytes once there are some, empty at the end of the stream, `None` after the time-out. Raises `OSError`."""
    if not await wait_readable(source.fileno(), timeout):
        return None
    try:
        return source.recv(CHUNK, socket.MSG_DONTWAIT)
    except (BlockingIOError, InterruptedError):
        return None


def close_socket(closed: socket.socket, *, reset: bool = False) -> None:
    """Close a socket without the linger time that a sandbox may have set; with `reset`, the peer sees an error."""
    try:
        closed.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET if reset else _NO_LINGER)
    except OSError:
        pass
    closed.close()
