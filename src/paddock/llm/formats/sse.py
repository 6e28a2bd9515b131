"""Incremental parser and encoder of server-sent events."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from paddock.llm.formats.base import BrokenModelStream, ModelStreamReader
from paddock.llm.formats.json_fields import encode_json
from paddock.llm.formats.neutral import AnswerPartDelta, StreamEvent

MAX_EVENT_BYTES = 16 * 1024 * 1024


@dataclass(slots=True)
class ServerSentEvent:
    data: str
    name: str = "message"


class ServerSentEventReader:
    """Parses events from a byte stream that is split at any position.

    Lines may end in LF, CRLF or CR. Comments, IDs, retry times and events without data are skipped.
    """

    def __init__(self, *, limit: int = MAX_EVENT_BYTES) -> None:
        self._limit = limit
        self._line = bytearray()
        self._data: list[str] = []
        self._name = ""
        self._size = 0
        self._after_cr = False
        self._first = True

    def feed(self, data: bytes) -> list[ServerSentEvent]:
        """Return the events that these bytes complete. Raises `BrokenModelStream` if one exceeds the limit."""
        events: list[ServerSentEvent] = []
        start = 0
        if self._after_cr and data:
            self._after_cr = False
            if data[0] == 0x0A:
                start = 1
        newline = carriage = -1
        while start < len(data):
            # Search for each line end only after the last match is passed; otherwise data with one kind of line end
            # would be searched to its end for the other kind on every line.
            if newline < start:
                newline = _find_or_end(data, b"\n", start)
            if carriage < start:
                carriage = _find_or_end(data, b"\r", start)
            end = min(newline, carriage)
            self._append(data[start:end])
            if end == len(data):
                break
            line = bytes(self._line)
            self._line.clear()
            start = end + 1
            if end == carriage:
                if start == len(data):
                    self._after_cr = True
                elif start == newline:
                    start += 1
            event = self._process_line(line)
            if event is not None:
                events.append(event)
        return events

    def split_whole_events(self, data: bytes) -> list[bytes] | None:
        """Return the data of the events if the bytes contain only whole, simple events; otherwise `None`.

        With `None`, pass the bytes to `feed`. This fast path makes streams cheap: most writes of a server are one
        event and arrive as such.
        """
        if (
            data[-2:] != b"\n\n"
            or self._line
            or self._data
            or self._name
            or self._after_cr
            or len(data) > self._limit
            or b"\r" in data
        ):
            return None
        found: list[bytes] = []
        for block in data[:-2].split(b"\n\n"):
            if block[:7] == b"event: ":
                if b'"type"' not in block:
                    return None  # The type is only in the event name, which the fast path drops.
                block = block[block.find(b"\n") + 1 :]
            if block[:6] != b"data: " or b"\n" in block:
                return None
            found.append(block[6:])
        self._first = False
        return found

    def read_events(self, data: bytes) -> Sequence[bytes | ServerSentEvent]:
        """Return the events that these bytes complete: only the data for events of the fast path."""
        whole_events = self.split_whole_events(data)
        if whole_events is not None:
            return whole_events
        first, last = data.find(b"\n\n"), data.rfind(b"\n\n")
        if first == last:
            return self.feed(data)
        # A read that starts or ends within an event has whole events in its middle.
        found: list[bytes | ServerSentEvent] = [*self.feed(data[: first + 2])]
        middle = data[first + 2 : last + 2]
        whole_events = self.split_whole_events(middle)
        found += self.feed(middle) if whole_events is None else whole_events
        return [*found, *self.feed(data[last + 2 :])]

    def close(self) -> list[ServerSentEvent]:
        """Finish at the end of the bytes. A last event without its blank line counts: some servers omit it."""
        events: list[ServerSentEvent] = []
        if self._line:
            line = bytes(self._line)
            self._line.clear()
            self._process_line(line)
        event = self._process_line(b"")
        if event is not None:
            events.append(event)
        return events

    def _append(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._limit:
            raise BrokenModelStream(f"an event of the stream is larger than {self._limit} bytes")
        self._line += piece

    def _process_line(self, line: bytes) -> ServerSentEvent | None:
        if self._first:
            self._first = False
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            return self._dispatch()
        if line.startswith(b":"):
            self._size -= len(line)
            return None
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            raise BrokenModelStream("the stream is not UTF-8") from error
        field, _, value = text.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value
        else:
            self._size -= len(line)
        return None

    def _dispatch(self) -> ServerSentEvent | None:
        event = ServerSentEvent("\n".join(self._data), self._name or "message") if self._data else None
        self._data = []
        self._name = ""
        self._size = 0
        return event


def _find_or_end(data: bytes, byte: bytes, start: int) -> int:
    """Return the next position of a byte; the length of the data if there is none."""
    position = data.find(byte, start)
    return position if position >= 0 else len(data)


class EventStreamReader(ModelStreamReader):
    """Stream reader for server-sent events, with a fast path for the most frequent ones."""

    def __init__(self) -> None:
        self._events = ServerSentEventReader()

    def feed(self, data: bytes) -> list[StreamEvent]:
        return self._read_all(self._events.read_events(data))

    def _read_all(self, pieces: Iterable[bytes | ServerSentEvent]) -> list[StreamEvent]:
        events: list[StreamEvent] = []
        for piece in pieces:
            if not isinstance(piece, bytes):
                events += self._read_event(piece.data, piece.name)
            elif (delta := self._parse_delta_fast(piece)) is not None:
                events.append(delta)
            else:
                events += self._read_event(piece)
        return events

    @abstractmethod
    def _parse_delta_fast(self, piece: bytes) -> AnswerPartDelta | None:
        """Parse an event that only continues an open part, the most frequent kind; `None` for all others."""

    @abstractmethod
    def _read_event(self, data: str | bytes, name: str = "") -> list[StreamEvent]:
        """Parse any event. `name` is the event name, empty on the fast path."""


def encode_server_sent_event(data: Any, name: str | None = None) -> bytes:
    """Encode one event; `data` is written as JSON, or unchanged if it is text."""
    head = f"event: {name}\n".encode() if name else b""
    if isinstance(data, str):
        lines = "".join(f"data: {line}\n" for line in data.split("\n"))
        return head + lines.encode(errors="replace") + b"\n"
    return b"%bdata: %b\n\n" % (head, encode_json(data))
