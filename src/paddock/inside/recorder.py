"""Moves the output of a background process to its spool."""

from __future__ import annotations

import os
import select
import time

from .pipes import READ_SIZE, bytes_waiting, close_all
from .processes import Child
from .spool import Spool

HELD_MS = 20
"""How long the outputs of a command stay unread at a time while its follower is behind."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class Recorder:
    """One loop over a child's outputs and its end.

    When the child ends, what it had written is stored before `on_exit` is called. Processes it left
    behind may hold the pipes; what they write is still recorded.
    """

    def __init__(self, spool: Spool, child: Child, readers: list[int], deadline: float | None) -> None:
        self._spool = spool
        self._child = child
        self._readers = readers
        self._deadline = deadline
        self.on_deadline: Callable[[], None] = lambda: None
        self.on_exit: Callable[[], None] = lambda: None

    def run(self) -> None:
        poller = select.poll()
        left = set(self._readers)
        for descriptor in (*left, self._child.exited_fd):
            poller.register(descriptor, select.POLLIN)
        ending = select.poll()
        ending.register(self._child.exited_fd, select.POLLIN)
        exited = False
        while left or not exited:
            if not exited and self._spool.full and not ending.poll(HELD_MS):
                self._check_deadline()
                continue
            ready = poller.poll(self._patience())
            for descriptor, _ in ready:
                if descriptor == self._child.exited_fd:
                    continue
                if not self._record(descriptor):
                    poller.unregister(descriptor)
                    left.discard(descriptor)
            if not exited and any(descriptor == self._child.exited_fd for descriptor, _ in ready):
                exited = True
                poller.unregister(self._child.exited_fd)
                self._finish(left)
            self._check_deadline()
        close_all(self._readers)

    def _finish(self, left: set[int]) -> None:
        self._deadline = None
        for descriptor in left:
            waiting = bytes_waiting(descriptor)
            while waiting > 0 and self._record(descriptor):
                waiting -= READ_SIZE
        self._child.close()
        self.on_exit()
        self._spool.close()

    def _record(self, descriptor: int) -> bool:
        data = os.read(descriptor, READ_SIZE)
        if data:
            self._spool.append(self._readers.index(descriptor), data)
        return bool(data)

    def _patience(self) -> float | None:
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic()) * 1000 + 1

    def _check_deadline(self) -> None:
        if self._deadline is not None and time.monotonic() >= self._deadline:
            self._deadline = None
            self.on_deadline()
