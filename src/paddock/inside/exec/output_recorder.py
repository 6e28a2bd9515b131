"""Records the output of a background process in its spool."""

from __future__ import annotations

import os
import select
import time

from ..file_descriptors import READ_SIZE, close_descriptors, readable_byte_count
from .output_spool import OutputSpool
from .processes import ChildProcess

BACKPRESSURE_POLL_MS = 20
"""Milliseconds between two checks whether a lagging follower has caught up; output is not read meanwhile."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class OutputRecorder:
    """One loop over a child's outputs and its exit.

    When the child ends, its remaining output is stored before `on_exit` is called. Processes it left
    behind may hold the pipes; their output is recorded as well.
    """

    def __init__(self, spool: OutputSpool, child: ChildProcess, readers: list[int], deadline: float | None) -> None:
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
        exit_poller = select.poll()
        exit_poller.register(self._child.exited_fd, select.POLLIN)
        exited = False
        while left or not exited:
            if not exited and self._spool.follower_lags and not exit_poller.poll(BACKPRESSURE_POLL_MS):
                self._check_deadline()
                continue
            ready = poller.poll(self._poll_timeout_ms())
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
        close_descriptors(self._readers)

    def _finish(self, left: set[int]) -> None:
        self._deadline = None
        for descriptor in left:
            waiting = readable_byte_count(descriptor)
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

    def _poll_timeout_ms(self) -> float | None:
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic()) * 1000 + 1

    def _check_deadline(self) -> None:
        if self._deadline is not None and time.monotonic() >= self._deadline:
            self._deadline = None
            self.on_deadline()
