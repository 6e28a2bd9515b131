"""Whoever waits for the answer to a call, and may hang up before it comes."""

from __future__ import annotations

import os
import select
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket


class HungUp(BaseException):
    """Nobody waits for what a tool is at. Like any cancellation, it passes those who catch every `Exception`."""


class Caller:
    """The other end of a call's connection. Without one, somebody who never leaves."""

    def __init__(self, connection: socket.socket | None = None) -> None:
        self._connection = connection

    def fileno(self) -> int:
        return -1 if self._connection is None else self._connection.fileno()

    def join(self, poller: select.poll) -> None:
        """Have a poller wake up when the caller hangs up."""
        if self.fileno() >= 0:
            poller.register(self.fileno(), 0)

    @property
    def gone(self) -> bool:
        poller = select.poll()
        self.join(poller)
        return bool(poller.poll(0))

    def check(self) -> None:
        """Raise HungUp if the caller has."""
        if self.gone:
            raise HungUp

    def hear(self, source: int, data: bytes) -> None:
        """Take what a tool says before its end, by the descriptor it came from. Most callers only want the end."""

    def soon(self, seconds: float) -> float:
        """Pass on what was heard, if it is time, and return how long to wait for more: `seconds` at most."""
        return seconds

    def sleep(self, seconds: float) -> None:
        """Let time pass. Raises HungUp as soon as nobody waits for the end of it."""
        poller = select.poll()
        self.join(poller)
        if poller.poll(seconds * 1000):
            raise HungUp


class Turn:
    """A lock for one at a time, first come first served, whose waiters leave the queue when their callers hang up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = False
        self._waiting: list[int] = []

    def take(self, caller: Caller, seconds: float) -> bool:
        """Wait for it, `seconds` at most; False when that was too short. Raises HungUp."""
        with self._lock:
            if not self._taken:
                self._taken = True
                return True
            reader, writer = os.pipe()
            self._waiting.append(writer)
        try:
            poller = select.poll()
            poller.register(reader, select.POLLIN)
            caller.join(poller)
            poller.poll(seconds * 1000 + 1)
        finally:
            with self._lock:
                handed = writer not in self._waiting
                if not handed:
                    self._waiting.remove(writer)
            os.close(reader)
            os.close(writer)
        if caller.gone:
            if handed:
                self.give_back()
            raise HungUp
        return handed

    def give_back(self) -> None:
        with self._lock:
            if self._waiting:
                os.write(self._waiting.pop(0), b".")
            else:
                self._taken = False
