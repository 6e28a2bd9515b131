"""Streams of a session as server-sent events, which a client can resume after a lost connection."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass

from paddock.mcp.protocol.revisions import LATEST_LEGACY_REVISION
from paddock.mcp.serving.http_messages import KEEP_ALIVE_COMMENT, ReplyStream, event_bytes
from paddock.mcp.serving.message_buffer import BufferClosed, MessageBuffer

RETRY_MILLISECONDS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTimes:
    """Times of the streams of sessions, in seconds."""

    first_message: float = 3.0
    """A response before this is sent without a stream."""
    first_message_resumable: float = 0.25
    """The same for clients that can resume a stream from its first event."""
    keep_alive: float = 15.0
    resume: float = 30.0
    """A call whose client has disconnected is cancelled after this."""
    poll_after: float | None = None
    """Close the first connection of a call without messages after this; the client, of 2025-11-25, connects again."""
    client_answer: float = 600.0
    """A client must answer a request of a server within this."""


class SessionStream(ABC):
    """Messages of a call or of a subscription, for one connection after another."""

    def __init__(self, number: int, times: StreamTimes) -> None:
        self.number = number
        self.times = times
        self.buffer = MessageBuffer(replay=True)
        self.reader: object = None
        self._expiry: asyncio.TimerHandle | None = None

    @property
    def is_read(self) -> bool:
        return self.reader is not None

    @abstractmethod
    async def close(self) -> None:
        """Cancel what writes to the stream."""

    @abstractmethod
    def on_abandoned(self) -> None:
        """Give up the stream: no connection has read it for the time to resume."""

    def attach(self, reader: object) -> None:
        """Let a connection read the stream; an earlier one ends."""
        self.cancel_expiry()
        self.reader = reader
        self.buffer.take_over(reader)

    def detach(self, reader: object, *, at_once: bool = False) -> None:
        """Handle the end of a connection: the client has some time to come back."""
        if self.reader is reader:
            self.reader = None
            self._expiry = asyncio.get_running_loop().call_later(0 if at_once else self.times.resume, self.on_abandoned)

    def cancel_expiry(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None


class SessionEvents(ReplyStream):
    """One connection that reads a stream of a session."""

    def __init__(self, stream: SessionStream, revision: str, *, resumed: bool = False) -> None:
        self._stream = stream
        # Clients of older revisions would parse the empty event as a message.
        self._opening: bytes | None = None
        self._can_poll = revision == LATEST_LEGACY_REVISION and not resumed
        if self._can_poll:
            self._opening = b"id: %d-0\r\nretry: %d\r\ndata: \r\n\r\n" % (stream.number, RETRY_MILLISECONDS)
        self._opened_at = time.monotonic()
        stream.attach(self)

    async def next_chunk(self) -> bytes | None:
        if self._opening is not None:
            opening, self._opening = self._opening, None
            return opening
        times = self._stream.times
        timeout = times.keep_alive
        polls = times.poll_after is not None and self._can_poll
        if times.poll_after is not None and polls:
            timeout = min(timeout, max(0.0, self._opened_at + times.poll_after - time.monotonic()))
        try:
            found = await self._stream.buffer.get(self, timeout)
        except BufferClosed:
            return None
        if found is None:
            return None if polls and timeout < times.keep_alive else KEEP_ALIVE_COMMENT
        number, message = found
        return event_bytes(message, f"{self._stream.number}-{number}")

    async def close(self) -> None:
        self._stream.detach(self)


def parse_event_id(text: str) -> tuple[int, int] | None:
    """Return the numbers of a stream and of its last message that the client has."""
    stream, _, message = text.partition("-")
    if stream.isascii() and stream.isdigit() and message.isascii() and message.isdigit() and len(text) < 40:
        return int(stream), int(message)
    return None
