"""The output of a background command on disk, bounded, readable from any offset while it grows.

Offsets count the bytes of stdout and stderr together, in the order they were read. The output lies
in segments named after their first offset; next to each, an index says which stream a run of bytes
came from. When all segments together pass the limit, the oldest is dropped.
"""

from __future__ import annotations

import os
import struct
import threading
import time

from .pipes import close_all, write_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT = 256 * 1024 * 1024
FULL_LIMIT = 64 * 1024
"""Output kept of a command that starts while the sandbox is over its disk limit."""
SEGMENTS = 8
READ_LIMIT = 256 * 1024

_RUN = struct.Struct(">IBQ")
_STREAMS = ("stdout", "stderr")


class Run:
    """Bytes of one stream, as they lie in the spool."""

    __slots__ = ("data", "offset", "stream", "written_ms")

    def __init__(self, offset: int, stream: str, written_ms: int, data: bytes) -> None:
        self.offset = offset
        self.stream = stream
        self.written_ms = written_ms
        self.data = data

    @property
    def end(self) -> int:
        return self.offset + len(self.data)


class _Segment:
    def __init__(self, directory: str, start: int) -> None:
        self.start = start
        self.size = 0
        self.weight = 0
        self._stream = -1
        self._stamped = 0.0
        self._paths = (os.path.join(directory, f"{start}.out"), os.path.join(directory, f"{start}.run"))
        self._files = [os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600) for path in self._paths]

    @property
    def end(self) -> int:
        return self.start + self.size

    def append(self, stream: int, data: bytes) -> None:
        now = time.time()
        if stream != self._stream or now - self._stamped > 1.0:
            self._stream, self._stamped = stream, now
            write_all(self._files[1], _RUN.pack(self.size, stream, int(now * 1000)))
            self.weight += _RUN.size
        write_all(self._files[0], data)
        self.size += len(data)
        self.weight += len(data)

    def runs(self, position: int, limit: int) -> Iterator[Run]:
        index = os.pread(self._files[1], os.fstat(self._files[1]).st_size, 0)
        count = len(index) // _RUN.size
        first = _last_at_or_before(index, count, position)
        for number in range(first, count):
            begin, stream, stamp = _RUN.unpack_from(index, number * _RUN.size)
            end = _RUN.unpack_from(index, (number + 1) * _RUN.size)[0] if number + 1 < count else self.size
            begin = max(begin, position)
            while begin < end and limit > 0:
                data = os.pread(self._files[0], min(end - begin, limit), begin)
                yield Run(self.start + begin, _STREAMS[stream], stamp, data)
                begin += len(data)
                limit -= len(data)
            if limit <= 0:
                return

    def drop(self) -> None:
        close_all(self._files)
        for path in self._paths:
            os.unlink(path)


class Spool:
    """What a command wrote, kept for readers that come and go."""

    def __init__(self, directory: str, limit: int = LIMIT, hold: bool = False) -> None:
        os.makedirs(directory, 0o700, exist_ok=True)
        self._directory = directory
        self._held_at = limit // 2 if hold else 0
        self._followed_to = 0
        self._segment_limit = max(1, limit // SEGMENTS)
        self._changed = threading.Condition()
        self._segments = [_Segment(directory, 0)]
        self._closed = False

    @property
    def end(self) -> int:
        return self._segments[-1].end if self._segments else 0

    @property
    def full(self) -> bool:
        """Whether the writer is to wait until a follower has caught up."""
        return self._held_at > 0 and self.end - self._followed_to >= self._held_at

    def followed(self, offset: int) -> None:
        """Say how far a follower has come."""
        self._followed_to = max(self._followed_to, offset)

    def clamp(self, offset: int) -> int:
        """Move an offset to the nearest one that is still, or already, there."""
        with self._changed:
            oldest = self._segments[0].start if self._segments else 0
            return max(oldest, min(offset, self.end))

    def append(self, stream: int, data: bytes) -> None:
        """Add bytes of stream 0 (stdout) or 1 (stderr)."""
        with self._changed:
            if not self._segments:
                return
            if self._segments[-1].weight >= self._segment_limit:
                self._segments.append(_Segment(self._directory, self.end))
                if len(self._segments) > SEGMENTS:
                    self._segments.pop(0).drop()
            self._segments[-1].append(stream, data)
            self._changed.notify_all()

    def close(self) -> None:
        """Say that the command has ended."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def wait_beyond(self, offset: int, timeout: float) -> bool:
        """Wait for bytes after `offset`; False when the spool is complete without any."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self.end > offset, timeout)
            return self.end > offset or not self._closed

    def read(self, offset: int, limit: int = READ_LIMIT) -> list[Run]:
        """Return up to `limit` bytes from `offset`, or from the oldest bytes still kept."""
        with self._changed:
            for segment in self._segments:
                if offset < segment.end:
                    return list(segment.runs(max(0, offset - segment.start), limit))
        return []

    def remove(self) -> None:
        with self._changed:
            for segment in self._segments:
                segment.drop()
            self._segments.clear()
            self._closed = True
            self._changed.notify_all()
        os.rmdir(self._directory)


def _last_at_or_before(index: bytes, count: int, position: int) -> int:
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        if _RUN.unpack_from(index, middle * _RUN.size)[0] <= position:
            low = middle
        else:
            high = middle
    return low
