"""The client of a tool call, which may disconnect before the result, and a lock that respects that."""

from __future__ import annotations

import os
import select
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket


class CallerDisconnected(BaseException):
    """The client disconnected, so the call is cancelled. A BaseException, so that `except Exception` lets it pass."""


class CallerConnection:
    """The connection on which a call's result is awaited; without a connection, a client that never disconnects."""

    def __init__(self, connection: socket.socket | None = None) -> None:
        self._connection = connection

    def fileno(self) -> int:
        return -1 if self._connection is None else self._connection.fileno()

    def register_with(self, poller: select.poll) -> None:
        """Register with a poller, so that it wakes up when the client disconnects."""
        if self.fileno() >= 0:
            poller.register(self.fileno(), 0)

    @property
    def has_disconnected(self) -> bool:
        poller = select.poll()
        self.register_with(poller)
        return bool(poller.poll(0))

    def raise_if_disconnected(self) -> None:
        """Raise CallerDisconnected if the client has disconnected."""
        if self.has_disconnected:
            raise CallerDisconnected

    def receive_output(self, source: int, data: bytes) -> None:
        """Receive output of the running tool from descriptor `source`; ignored unless the client streams."""

    def flush_output(self, seconds: float) -> float:
        """Send gathered output if it is due, and return how long to wait for more: at most `seconds`."""
        return seconds

    def sleep(self, seconds: float) -> None:
        """Sleep. Raises CallerDisconnected as soon as the client disconnects."""
        poller = select.poll()
        self.register_with(poller)
        if poller.poll(seconds * 1000):
            raise CallerDisconnected


class FairLock:
    """A first-come, first-served lock; waiting calls leave the queue when their clients disconnect."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = False
        self._waiting: list[int] = []

    def acquire(self, caller: CallerConnection, seconds: float) -> bool:
        """Acquire the lock; False on timeout. Raises CallerDisconnected."""
        with self._lock:
            if not self._taken:
                self._taken = True
                return True
            reader, writer = os.pipe()
            self._waiting.append(writer)
        try:
            poller = select.poll()
            poller.register(reader, select.POLLIN)
            caller.register_with(poller)
            poller.poll(seconds * 1000 + 1)
        finally:
            with self._lock:
                granted = writer not in self._waiting
                if not granted:
                    self._waiting.remove(writer)
            os.close(reader)
            os.close(writer)
        if caller.has_disconnected:
            if granted:
                self.release()
            raise CallerDisconnected
        return granted

    def release(self) -> None:
        with self._lock:
            if self._waiting:
                os.write(self._waiting.pop(0), b".")
            else:
                self._taken = False
