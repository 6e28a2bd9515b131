"""Server-sent events, read as their bytes arrive and written one by one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from paddock.llm.formats.base import BrokenStream, StreamReader
from paddock.llm.formats.fields import to_bytes
from paddock.llm.neutral import Delta, Event

MAX_EVENT = 16 * 1024 * 1024


@dataclass(slots=True)
class ServerEvent:
    data: str
    name: str = "message"


class EventReader:
    """Finds the events in a stream of bytes, wherever it is cut.

    Lines may end in LF, CRLF or CR; comments, ids and retry times are skipped, and so are events without data.
    """

    def __init__(self, *, limit: int = MAX_EVENT) -> None:
        self._limit = limit
        self._line = bytearray()
        self._data: list[str] = []
        self._name = ""
        self._size = 0
        self._after_cr = False
        self._first = True

    def feed(self, data: bytes) -> list[ServerEvent]:
        """The events that these bytes complete. Raises `BrokenStream` when one is larger than the limit."""
        events: list[ServerEvent] = []
        start = 0
        if self._after_cr and data:
            self._after_cr = False
            if data[0] == 0x0A:
                start = 1
        newline = carriage = -1
        while start < len(data):
            # Each is looked for only when the last one found is passed, or lines of one kind would all be searched
            # to the end of the data for the other.
            if newline < start:
                newline = _find(data, b"\n", start)
            if carriage < start:
                carriage = _find(data, b"\r", start)
            end = min(newline, carriage)
            self._grow(data[start:end])
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
            event = self._take(line)
            if event is not None:
                events.append(event)
        return events

    def whole(self, data: bytes) -> list[bytes] | None:
        """The data of the events in these bytes, in the common case that they hold nothing but whole, simple ones.

        Otherwise `None`, and they are still to be fed. This is what makes streams cheap: most writes of a server are
        one event, and arrive as such.
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
                    return None  # It goes by its name, which only the long way keeps.
                block = block[block.find(b"\n") + 1 :]
            if block[:6] != b"data: " or b"\n" in block:
                return None
            found.append(block[6:])
        self._first = False
        return found

    def pieces(self, data: bytes) -> Sequence[bytes | ServerEvent]:
        """The events that these bytes complete: the data alone of those found at a glance, the others as they are."""
        whole = self.whole(data)
        if whole is not None:
            return whole
        first, last = data.find(b"\n\n"), data.rfind(b"\n\n")
        if first == last:
            return self.feed(data)
        # A read that ends or begins within an event has whole ones in its middle.
        found: list[bytes | ServerEvent] = [*self.feed(data[: first + 2])]
        middle = data[first + 2 : last + 2]
        whole = self.whole(middle)
        found += self.feed(middle) if whole is None else whole
        return [*found, *self.feed(data[last + 2 :])]

    def close(self) -> list[ServerEvent]:
        """The bytes have ended. An event that only lacks its blank line still counts: some servers leave it out."""
        events: list[ServerEvent] = []
        if self._line:
            line = bytes(self._line)
            self._line.clear()
            self._take(line)
        event = self._take(b"")
        if event is not None:
            events.append(event)
        return events

    def _grow(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._limit:
            raise BrokenStream(f"an event of the stream is larger than {self._limit} bytes")
        self._line += piece

    def _take(self, line: bytes) -> ServerEvent | None:
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
            raise BrokenStream("the stream is not UTF-8") from error
        field, _, value = text.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value
        else:
            self._size -= len(line)
        return None

    def _dispatch(self) -> ServerEvent | None:
        event = ServerEvent("\n".join(self._data), self._name or "message") if self._data else None
        self._data = []
        self._name = ""
        self._size = 0
        return event


def _find(data: bytes, byte: bytes, start: int) -> int:
    """Where it stands next; the end of the data where it does not."""
    place = data.find(byte, start)
    return place if place >= 0 else len(data)


class EventStreamReader(StreamReader):
    """Reads a provider's stream of server-sent events, the commonest of them at a glance."""

    def __init__(self) -> None:
        self._events = EventReader()

    def feed(self, data: bytes) -> list[Event]:
        return self._read_all(self._events.pieces(data))

    def _read_all(self, pieces: Iterable[bytes | ServerEvent]) -> list[Event]:
        events: list[Event] = []
        for piece in pieces:
            if not isinstance(piece, bytes):
                events += self._read(piece.data, piece.name)
            elif (delta := self._quick(piece)) is not None:
                events.append(delta)
            else:
                events += self._read(piece)
        return events

    @abstractmethod
    def _quick(self, piece: bytes) -> Delta | None:
        """More of what is being told and nothing else, which is what most of a stream says; `None` for all else."""

    @abstractmethod
    def _read(self, data: str | bytes, name: str = "") -> list[Event]:
        """What one event says, whatever it is. `name` is what it is called, where that was not read at a glance."""


def event_bytes(data: Any, name: str | None = None) -> bytes:
    """One event with `data` as JSON, or as it is when it is text."""
    head = f"event: {name}\n".encode() if name else b""
    if isinstance(data, str):
        lines = "".join(f"data: {line}\n" for line in data.split("\n"))
        return head + lines.encode(errors="replace") + b"\n"
    return b"%bdata: %b\n\n" % (head, to_bytes(data))
