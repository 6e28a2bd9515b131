"""The last of what a program wrote, in a file that does not grow beyond bounds."""

from __future__ import annotations

import os
import threading

from .pipes import write_all

LIMIT = 256 * 1024
TAIL = 16 * 1024
"""How much of the end is looked at for the last lines."""


class Journal:
    """Appended to by one thread, read by any."""

    def __init__(self, path: str) -> None:
        try:
            os.unlink(path)  # An earlier life's, in a box that was brought back from a snapshot.
        except FileNotFoundError:
            pass
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o600)
        self._lock = threading.Lock()

    def append(self, data: bytes) -> None:
        """Add bytes; past the limit the older half makes room. A full disk loses them, and nothing else."""
        with self._lock:
            try:
                size = os.fstat(self._file).st_size
                if size + len(data) > LIMIT:
                    kept = os.pread(self._file, LIMIT // 2, max(0, size - LIMIT // 2))
                    os.ftruncate(self._file, 0)
                    write_all(self._file, kept)
                write_all(self._file, data[-(LIMIT // 2) :])
            except OSError:
                pass

    def tail(self, count: int) -> list[str]:
        """Return the last lines, as text."""
        with self._lock:
            size = os.fstat(self._file).st_size
            data = os.pread(self._file, TAIL, max(0, size - TAIL))
        return data.decode("utf-8", "replace").splitlines()[-count:]
