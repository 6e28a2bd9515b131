"""Messages on their way to a client: bounded, so that a client that does not read stops its call, and replayable."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator

from msgspec import Raw

from paddock.mcp.protocol.messages import JsonRpcMessage

MAX_WAITING_MESSAGES = 64
MAX_WAITING_SIZE = 1 << 20
"""Bytes that wait for the client; one larger message may wait alone."""
MAX_REPLAY_SIZE = 1 << 18
"""Bytes that are kept for a client that continues after a lost connection."""


class BufferClosed(Exception):
    """There are no more messages, or another reader took over."""


class MessageBuffer:
    """A queue of numbered messages with one writer and one reader at a time."""

    def __init__(self, *, replay: bool = False) -> None:
        """With `replay`, sent messages are kept within the same bounds, for readers that continue after a number."""
        self._replay = replay
        self._waiting: deque[JsonRpcMessage] = deque()
        self._waiting_size = 0
        self._sent: deque[JsonRpcMessage] = deque()
        self._sent_size = 0
        self._next_number = 1
        """Number of the first waiting message."""
        self._closed = False
        self._readable = asyncio.Event()
        self._writable = asyncio.Event()
        self._reader: object = None

    @property
    def is_closed(self) -> bool:
        """True after the last message was added."""
        return self._closed

    @property
    def finished(self) -> bool:
        """True after the last message was read."""
        return self._closed and not self._waiting

    async def put(self, message: JsonRpcMessage) -> None:
        """Add a message; wait while the client lags behind."""
        size = message_size(message)
        while self._waiting and (
            len(self._waiting) >= MAX_WAITING_MESSAGES or self._waiting_size + size > MAX_WAITING_SIZE
        ):
            self._writable.clear()
            await self._writable.wait()
        self._waiting.append(message)
        self._waiting_size += size
        self._readable.set()

    def end_with(self, message: JsonRpcMessage) -> None:
        """Add a last message, even while the client lags behind."""
        self._waiting.append(message)
        self._waiting_size += message_size(message)
        self.close()

    def close(self) -> None:
        """End the queue after its last message."""
        self._closed = True
        self._readable.set()

    def take_over(self, reader: object) -> None:
        """Let `reader` be the only one; an earlier reader gets `BufferClosed`."""
        self._reader = reader
        self._readable.set()

    async def get(self, reader: object, timeout: float | None) -> tuple[int, JsonRpcMessage] | None:
        """Return the next message and its number, or None after `timeout`. Raises `BufferClosed`."""
        try:
            async with asyncio.timeout(timeout):
                while not self._waiting:
                    self._check(reader)
                    self._readable.clear()
                    await self._readable.wait()
        except TimeoutError:
            return None
        self._check(reader)
        message = self._waiting.popleft()
        size = message_size(message)
        self._waiting_size -= size
        number = self._next_number
        self._next_number += 1
        if self._replay:
            self._sent.append(message)
            self._sent_size += size
            while len(self._sent) > MAX_WAITING_MESSAGES or self._sent_size > MAX_REPLAY_SIZE:
                self._sent_size -= message_size(self._sent.popleft())
        self._writable.set()
        return number, message

    def rewind(self, after: int) -> bool:
        """Let the messages after a number be read again; False if some of them are no longer kept."""
        first_kept = self._next_number - len(self._sent)
        if not first_kept - 1 <= after < self._next_number:
            return False
        while self._next_number > after + 1:
            message = self._sent.pop()
            size = message_size(message)
            self._sent_size -= size
            self._waiting.appendleft(message)
            self._waiting_size += size
            self._next_number -= 1
        self._readable.set()
        return True

    def _check(self, reader: object) -> None:
        if reader is not self._reader or self.finished:
            raise BufferClosed


def message_size(message: JsonRpcMessage) -> int:
    return 64 + sum(part.nbytes for part in _parts(message))


def _parts(message: JsonRpcMessage) -> Iterator[memoryview]:
    for part in (message.params, message.result, message.error):
        if isinstance(part, Raw):
            yield memoryview(part)
