"""Lock of a data directory, held by one server at a time."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Self

from paddock.errors import AlreadyRunning, Unavailable


class DataDirectoryLock:
    """Exclusive file lock; the kernel releases it when the process dies."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def acquire(cls, data: Path) -> Self:
        """Take the lock, making the directory if needed. Raises `AlreadyRunning` naming the process that holds it."""
        path = data / "server.lock"
        try:
            data.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise Unavailable(f"{error.filename or path} cannot be used: {error.strerror}.") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise AlreadyRunning(
                f"Another Paddock server (pid {holder}) uses {data}; stop it or choose another data directory."
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        return cls(descriptor)

    def release(self) -> None:
        """Release the lock. Idempotent. The file stays, because removing it could let two servers in."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
