"""Reads server-sent events as they arrive, in pieces of any size."""

from __future__ import annotations

import re
from dataclasses import dataclass

from paddock.errors import TooLarge

_LINE_END = re.compile(rb"\r\n|\n|\r")


@dataclass(frozen=True, slots=True)
class McpStreamEvent:
    """One event with its data; comments and empty events are left out."""

    data: bytes
    event: str = "message"


class McpEventReader:
    """Splits a stream into events; lines and events have a maximum size."""

    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._buffer = bytearray()
        self._scanned = 0
        self._data: list[bytes] = []
        self._data_size = 0
        self._event = "message"
        self._at_start = True
        self.last_id: str | None = None
        """Id of the last event that has one, for resuming the stream."""
        self.retry: float | None = None
        """Seconds after which the server wants the client to resume a stream that ended."""

    def feed(self, chunk: bytes) -> list[McpStreamEvent]:
        """Return the events that are complete. Raises `TooLarge`."""
        self._buffer += chunk
        events = []
        start = 0
        position = self._scanned
        while match := _LINE_END.search(self._buffer, position):
            if match[0] == b"\r" and match.end() == len(self._buffer):
                break  # Its line feed may be in the next chunk.
            if event := self._take_line(bytes(self._buffer[start : match.start()])):
                events.append(event)
            start = position = match.end()
        del self._buffer[:start]
        self._scanned = max(0, len(self._buffer) - 1)
        if len(self._buffer) + self._data_size > self._max_size:
            raise TooLarge(f"an event is larger than {self._max_size} bytes")
        return events

    def _take_line(self, line: bytes) -> McpStreamEvent | None:
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            event = McpStreamEvent(b"\n".join(self._data), self._event) if self._data else None
            self._data, self._data_size, self._event = [], 0, "message"
            return event
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
            self._data_size += len(value) + 1
        elif field == b"event":
            self._event = value.decode(errors="replace")
        elif field == b"id" and b"\0" not in value:
            self.last_id = value.decode(errors="replace")
        elif field == b"retry" and value.isdigit() and len(value) < 10:
            self.retry = int(value) / 1000
        return None
