"""Helpers for pipes and other file descriptors."""

from __future__ import annotations

import fcntl
import os
import select
import struct
import termios

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

READ_SIZE = 64 * 1024
READABLE = select.POLLIN | select.POLLHUP | select.POLLERR


class OutputPipes:
    """The stdout and stderr pipes of a process; close the write ends once it has been started."""

    _fifo_paths: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.stdout, self.stdout_writer = os.pipe()
        self.stderr, self.stderr_writer = os.pipe()

    @property
    def readers(self) -> list[int]:
        return [self.stdout, self.stderr]

    def replace_by_fifos(self, stdout: str, stderr: str) -> None:
        """Use named pipes instead, which a process that already runs can open."""
        self.close_writers()
        self.close_readers()
        self._fifo_paths = (stdout, stderr)
        for path in self._fifo_paths:
            os.mkfifo(path, 0o600)
        self.stdout = os.open(stdout, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self.stderr = os.open(stderr, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def replace_by_duplicates(self, stdout: int, stderr: int) -> None:
        """Read from duplicates of these pipes instead, which a process that already runs writes to."""
        self.close_writers()
        self.close_readers()
        self.stdout, self.stderr = os.dup(stdout), os.dup(stderr)

    def close_writers(self) -> None:
        close_descriptors((self.stdout_writer, self.stderr_writer))

    def unlink_fifos(self) -> None:
        for path in self._fifo_paths:
            try:
                os.unlink(path)
            except FileNotFoundError:
                pass

    def close_readers(self) -> None:
        close_descriptors(self.readers)


def close_descriptors(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def readable_byte_count(descriptor: int) -> int:
    """Return the number of bytes that can be read without blocking."""
    count: int = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, b"\0" * 4))[0]
    return count


def discard_output(descriptors: list[int]) -> None:
    """Read and drop output until end of file, so that leftover processes can go on writing."""
    poller = select.poll()
    for descriptor in descriptors:
        os.set_blocking(descriptor, True)
        poller.register(descriptor, select.POLLIN)
    left = set(descriptors)
    while left:
        for descriptor, _ in poller.poll():
            if not os.read(descriptor, READ_SIZE):
                poller.unregister(descriptor)
                left.discard(descriptor)
                os.close(descriptor)


def open_unlinked_file(directory: str) -> int:
    """Open an unlinked temporary file for reading and writing."""
    path = os.path.join(directory, f".{os.urandom(8).hex()}~")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.unlink(path)
    return descriptor


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
