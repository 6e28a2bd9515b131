"""The latest output of a program, in a log file of bounded size."""

from __future__ import annotations

import os
import threading

from ..file_descriptors import write_all

LOG_LIMIT = 256 * 1024
TAIL_BYTES = 16 * 1024
"""Bytes at the end of the file that are searched for the last lines."""


class BoundedLogFile:
    """Log file with one writing thread and any number of readers."""

    def __init__(self, path: str) -> None:
        try:
            os.unlink(path)  # Left by an earlier daemon in a sandbox restored from a snapshot.
        except FileNotFoundError:
            pass
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o600)
        self._lock = threading.Lock()

    def append(self, data: bytes) -> None:
        """Append bytes; past the limit the older half is dropped. On a full disk the bytes are lost."""
        with self._lock:
            try:
                size = os.fstat(self._file).st_size
                if size + len(data) > LOG_LIMIT:
                    newer_half = os.pread(self._file, LOG_LIMIT // 2, max(0, size - LOG_LIMIT // 2))
                    os.ftruncate(self._file, 0)
                    write_all(self._file, newer_half)
                write_all(self._file, data[-(LOG_LIMIT // 2) :])
            except OSError:
                pass

    def tail(self, count: int) -> list[str]:
        """Return the last `count` lines."""
        with self._lock:
            size = os.fstat(self._file).st_size
            data = os.pread(self._file, TAIL_BYTES, max(0, size - TAIL_BYTES))
        return data.decode("utf-8", "replace").splitlines()[-count:]
