"""The output of a background command on disk, bounded, readable from any offset while it grows.

Offsets count the bytes of stdout and stderr together, in the order they were read. The output is
stored in files named after their first offset; an index next to each file says which stream a segment
of bytes came from. When all files together exceed the limit, the oldest is dropped.
"""

from __future__ import annotations

import os
import struct
import threading
import time

from ..file_descriptors import close_descriptors, write_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

SPOOL_LIMIT = 256 * 1024 * 1024
DISK_FULL_LIMIT = 64 * 1024
"""Bytes of output kept for a command that starts while the sandbox is over its disk limit."""
MAX_FILES = 8
MAX_READ = 256 * 1024

_INDEX_ENTRY = struct.Struct(">IBQ")
_STREAMS = ("stdout", "stderr")


class OutputSegment:
    """Consecutive bytes of one stream in the spool."""

    __slots__ = ("data", "offset", "stream", "written_ms")

    def __init__(self, offset: int, stream: str, written_ms: int, data: bytes) -> None:
        self.offset = offset
        self.stream = stream
        self.written_ms = written_ms
        self.data = data

    @property
    def end(self) -> int:
        return self.offset + len(self.data)


class _SpoolFile:
    def __init__(self, directory: str, start: int) -> None:
        self.start = start
        self.size = 0
        self.stored_bytes = 0
        self._stream = -1
        self._stamped_at = 0.0
        self._paths = (os.path.join(directory, f"{start}.out"), os.path.join(directory, f"{start}.run"))
        self._files = [os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600) for path in self._paths]

    @property
    def end(self) -> int:
        return self.start + self.size

    def append(self, stream: int, data: bytes) -> None:
        now = time.time()
        if stream != self._stream or now - self._stamped_at > 1.0:
            self._stream, self._stamped_at = stream, now
            write_all(self._files[1], _INDEX_ENTRY.pack(self.size, stream, int(now * 1000)))
            self.stored_bytes += _INDEX_ENTRY.size
        write_all(self._files[0], data)
        self.size += len(data)
        self.stored_bytes += len(data)

    def read_segments(self, position: int, limit: int) -> Iterator[OutputSegment]:
        index = os.pread(self._files[1], os.fstat(self._files[1]).st_size, 0)
        count = len(index) // _INDEX_ENTRY.size
        first = _last_at_or_before(index, count, position)
        for number in range(first, count):
            begin, stream, stamp = _INDEX_ENTRY.unpack_from(index, number * _INDEX_ENTRY.size)
            end = (
                _INDEX_ENTRY.unpack_from(index, (number + 1) * _INDEX_ENTRY.size)[0]
                if number + 1 < count
                else self.size
            )
            begin = max(begin, position)
            while begin < end and limit > 0:
                data = os.pread(self._files[0], min(end - begin, limit), begin)
                yield OutputSegment(self.start + begin, _STREAMS[stream], stamp, data)
                begin += len(data)
                limit -= len(data)
            if limit <= 0:
                return

    def delete(self) -> None:
        close_descriptors(self._files)
        for path in self._paths:
            os.unlink(path)


class OutputSpool:
    """Output of a command, for any number of readers."""

    def __init__(self, directory: str, limit: int = SPOOL_LIMIT, wait_for_follower: bool = False) -> None:
        os.makedirs(directory, 0o700, exist_ok=True)
        self._directory = directory
        self._max_lag = limit // 2 if wait_for_follower else 0
        self._follower_position = 0
        self._file_limit = max(1, limit // MAX_FILES)
        self._changed = threading.Condition()
        self._spool_files = [_SpoolFile(directory, 0)]
        self._closed = False

    @property
    def end(self) -> int:
        return self._spool_files[-1].end if self._spool_files else 0

    @property
    def follower_lags(self) -> bool:
        """True if the writer must wait until a follower has caught up."""
        return self._max_lag > 0 and self.end - self._follower_position >= self._max_lag

    def report_follower_position(self, offset: int) -> None:
        """Record the offset up to which a follower has read."""
        self._follower_position = max(self._follower_position, offset)

    def clamp_offset(self, offset: int) -> int:
        """Return the nearest offset that is still kept and already written."""
        with self._changed:
            oldest = self._spool_files[0].start if self._spool_files else 0
            return max(oldest, min(offset, self.end))

    def append(self, stream: int, data: bytes) -> None:
        """Add bytes of stream 0 (stdout) or 1 (stderr)."""
        with self._changed:
            if not self._spool_files:
                return
            if self._spool_files[-1].stored_bytes >= self._file_limit:
                self._spool_files.append(_SpoolFile(self._directory, self.end))
                if len(self._spool_files) > MAX_FILES:
                    self._spool_files.pop(0).delete()
            self._spool_files[-1].append(stream, data)
            self._changed.notify_all()

    def close(self) -> None:
        """Mark the output as complete."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def wait_beyond(self, offset: int, timeout: float) -> bool:
        """Wait for bytes after `offset`; False if the output is complete before it."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self.end > offset, timeout)
            return self.end > offset or not self._closed

    def read(self, offset: int, limit: int = MAX_READ) -> list[OutputSegment]:
        """Return up to `limit` bytes from `offset`, or from the oldest bytes still kept."""
        with self._changed:
            for segment in self._spool_files:
                if offset < segment.end:
                    return list(segment.read_segments(max(0, offset - segment.start), limit))
        return []

    def remove(self) -> None:
        with self._changed:
            for segment in self._spool_files:
                segment.delete()
            self._spool_files.clear()
            self._closed = True
            self._changed.notify_all()
        os.rmdir(self._directory)


def _last_at_or_before(index: bytes, count: int, position: int) -> int:
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        if _INDEX_ENTRY.unpack_from(index, middle * _INDEX_ENTRY.size)[0] <= position:
            low = middle
        else:
            high = middle
    return low
