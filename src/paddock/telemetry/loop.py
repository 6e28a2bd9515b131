"""Measures how long the event loop is held: by each step of a request, and how late timers fire."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import Any, TypeVar, cast

import structlog

from paddock.telemetry.exposition import Histogram

T = TypeVar("T")
EVERY = 0.05
"""Seconds between two heartbeats."""
SLOW = 0.1
"""Seconds after which a hold is logged."""
_LOGGED_EVERY = 1.0
_NOTED = 0.005
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
log = structlog.get_logger()


class LoopMonitor:
    """Counts holds of the event loop. `start` begins the heartbeat; requests are measured by `timed`."""

    def __init__(self, *, cpu: bool = False) -> None:
        """With `cpu`, the CPU time of each step is measured too, which itself takes two microseconds a step."""
        self.clock = time.thread_time if cpu else _no_clock
        self.lag = Histogram(_BUCKETS)
        self.longest_lag = 0.0
        self.longest_hold = 0.0
        """Seconds of the longest step of a request since `forget`."""
        self.longest_work = 0.0
        """The same in CPU time, which a busy machine does not make longer; 0 unless it is measured."""
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._log_again = 0.0

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._due = time.perf_counter() + EVERY
        self._timer = loop.call_later(EVERY, self._beat, loop)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def forget(self) -> None:
        """Begin the longest times anew."""
        self.longest_lag = self.longest_hold = self.longest_work = 0.0

    def timed(self, work: Coroutine[Any, Any, T], route: str) -> Timed[T]:
        """Measure each step of `work`, from one wait to the next."""
        return Timed(work, self, route)

    def note(self, seconds: float, busy: float, route: str) -> None:
        """Take note of a step of a request that took long; `busy` is the CPU time in it."""
        self.longest_hold = max(self.longest_hold, seconds)
        self.longest_work = max(self.longest_work, busy)
        if seconds > SLOW:
            now = time.monotonic()
            if now >= self._log_again:
                self._log_again = now + _LOGGED_EVERY
                log.warning(
                    "event loop held",
                    route=route[:200],
                    milliseconds=round(seconds * 1000),
                    cpu_milliseconds=round(busy * 1000),
                )

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        now = time.perf_counter()
        late = max(0.0, now - self._due)
        self.lag.add(late)
        self.longest_lag = max(self.longest_lag, late)
        self._due = now + EVERY
        self._timer = loop.call_later(EVERY, self._beat, loop)


def _no_clock() -> float:
    return 0.0


class Timed(Generator[Any, Any, T]):
    """An awaitable that runs a coroutine and measures each of its steps."""

    __slots__ = ("_monitor", "_route", "_work")

    def __init__(self, work: Coroutine[Any, Any, T], monitor: LoopMonitor, route: str) -> None:
        self._work = work
        self._monitor = monitor
        self._route = route

    def __await__(self) -> Generator[Any, Any, T]:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        started, used = time.perf_counter(), self._monitor.clock()
        try:
            return self._work.send(value)
        finally:
            took = time.perf_counter() - started
            if took > _NOTED:
                self._monitor.note(took, self._monitor.clock() - used, self._route)

    def throw(self, kind: Any, value: BaseException | object = None, traceback: TracebackType | None = None) -> Any:
        return self._work.throw(cast(BaseException, kind if value is None else value))

    def close(self) -> None:
        self._work.close()
