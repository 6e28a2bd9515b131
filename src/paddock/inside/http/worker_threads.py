"""Threads of the daemon, some of them idle in advance."""

from __future__ import annotations

import sys
import threading
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

RESERVED_THREADS = 4


class WorkerThreads:
    """Runs each job in a thread, and keeps some idle threads for the next jobs.

    Programs can use up the sandbox's limit of processes, which also limits threads. The daemon then works with
    the threads that it has; jobs without a thread wait for one.
    """

    def __init__(self, reserve: int = RESERVED_THREADS) -> None:
        self._reserve = reserve
        self._changed = threading.Condition()
        self._jobs: deque[Callable[[], None]] = deque()
        self._available = 0
        """Threads that wait for a job or are about to."""
        self._start_missing_threads()

    def run(self, job: Callable[[], None]) -> None:
        """Run a job soon; it never fails for want of a thread."""
        with self._changed:
            self._jobs.append(job)
            self._changed.notify()
        self._start_missing_threads()

    @property
    def exhausted(self) -> bool:
        """True if a job waits for a thread and no new thread can be started."""
        return len(self._jobs) > self._available

    def _start_missing_threads(self) -> None:
        while True:
            with self._changed:
                if self._available >= self._reserve + len(self._jobs):
                    return
                self._available += 1
            try:
                threading.Thread(target=self._work, daemon=True).start()
            except RuntimeError:
                with self._changed:
                    self._available -= 1
                return

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._jobs:
                    self._changed.wait()
                job = self._jobs.popleft()
                self._available -= 1
            try:
                job()
            except Exception:
                from traceback import print_exc

                print_exc(file=sys.stderr)
            del job
            with self._changed:
                if self._available >= self._reserve + len(self._jobs):
                    return
                self._available += 1
