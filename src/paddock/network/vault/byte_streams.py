"""Streams of bytes over sockets, plain and TLS, with back-pressure and without buffers that grow.

One of the sockets belongs to a sandbox, which keeps access to it and can change its flags. So no call relies on
non-blocking mode: every read and write passes `MSG_DONTWAIT`.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Protocol

RECEIVE = 256 * 1024
"""Bytes received at a time."""
_RECORD = 16 * 1024


class ByteStream(Protocol):
    """Reads and writes bytes. Reading and writing may happen at the same time, but each only once."""

    async def read(self) -> bytes:
        """Return some bytes, empty at the orderly end. Raises `OSError`."""
        ...

    async def write(self, data: bytes) -> None:
        """Return once the kernel has taken all bytes. Raises `OSError`."""
        ...

    async def finish(self) -> None:
        """Tell the peer that nothing follows. Raises `OSError`."""
        ...


class PlainStream:
    """Bytes of a socket as they are; `first` was read already."""

    def __init__(self, connected: socket.socket, count: Callable[[int, int], None], first: bytes = b"") -> None:
        """`count` gets the numbers of sent and received bytes."""
        self._socket = connected
        self._count = count
        self._first = first

    async def read(self) -> bytes:
        if self._first:
            first, self._first = self._first, b""
            return first
        return await self.receive()

    async def receive(self) -> bytes:
        loop = asyncio.get_running_loop()
        while True:
            try:
                data = self._socket.recv(RECEIVE, socket.MSG_DONTWAIT)
            except (BlockingIOError, InterruptedError):
                await _wait_ready(loop.add_reader, loop.remove_reader, self._socket.fileno())
                continue
            self._count(0, len(data))
            return data

    async def write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[await self.send(left) :]

    async def send(self, data: memoryview) -> int:
        """Send some bytes and return how many; a cancelled call has sent none."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                sent = self._socket.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except (BlockingIOError, InterruptedError):
                await _wait_ready(loop.add_writer, loop.remove_writer, self._socket.fileno())
                continue
            self._count(sent, 0)
            return sent

    async def finish(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)


class TlsStream:
    """TLS over a socket; `first` was read from it already."""

    def __init__(
        self,
        connected: socket.socket,
        count: Callable[[int, int], None],
        context: ssl.SSLContext,
        *,
        server_hostname: str | None = None,
        first: bytes = b"",
    ) -> None:
        """Prepare the handshake: as a client if `server_hostname` is given, else as a server."""
        self._raw = PlainStream(connected, count)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_hostname is None, server_hostname=server_hostname
        )
        self._sending = asyncio.Lock()
        self._unsent = memoryview(b"")
        """Rest of records of which a part was sent; kept if the task that sends is cancelled."""
        self._incoming.write(first)

    async def handshake(self) -> None:
        """Complete the handshake. Raises `ssl.SSLError` and other `OSError`. Has no time limit."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                await self._receive()
                continue
            except ssl.SSLError:
                # The alert tells the peer why.
                try:
                    await self._flush()
                except OSError:
                    pass
                raise
            return await self._flush()

    async def read(self) -> bytes:
        while True:
            pieces: list[bytes] = []
            try:
                while self._incoming.pending or not pieces:
                    piece = self._tls.read(_RECORD)
                    if not piece:
                        break
                    pieces.append(piece)
                    if len(pieces) * _RECORD >= RECEIVE:
                        break
                else:
                    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
                return b"".join(pieces)
            except ssl.SSLWantReadError:
                if pieces:
                    return b"".join(pieces)
            except ssl.SSLZeroReturnError:
                return b"".join(pieces)
            if self._outgoing.pending:
                await self._flush()  # Answers to key updates.
            await self._receive()

    async def write(self, data: bytes) -> None:
        self._tls.write(data)
        await self._flush()

    async def finish(self) -> None:
        try:
            self._tls.unwrap()
        except ssl.SSLError:
            pass  # The peer has not sent its own close_notify, which is not awaited.
        await self._flush()
        await self._raw.finish()

    async def _receive(self) -> None:
        data = await self._raw.receive()
        if not data:
            # Without close_notify, the stream may have been truncated on the way.
            raise ConnectionResetError("the TLS connection was cut off")
        self._incoming.write(data)

    async def _flush(self) -> None:
        async with self._sending:
            while self._unsent or self._outgoing.pending:
                self._unsent = self._unsent or memoryview(self._outgoing.read())
                self._unsent = self._unsent[await self._raw.send(self._unsent) :]


async def _wait_ready(
    add: Callable[[int, Callable[[], None]], object], remove: Callable[[int], object], descriptor: int
) -> None:
    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def set_ready() -> None:
        if not ready.done():
            ready.set_result(None)

    add(descriptor, set_ready)
    try:
        await ready
    finally:
        remove(descriptor)
