"""Measures blocking of the event loop: steps of tasks, callbacks of connections, and the lag of timers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from types import CodeType, CoroutineType, TracebackType
from typing import Any, TypeVar, cast

import structlog

from paddock.telemetry.prometheus import PrometheusHistogram

T = TypeVar("T")
A = TypeVar("A")
HEARTBEAT_INTERVAL = 0.05
"""Seconds between two heartbeats."""
SLOW_STEP = 0.05
"""Seconds above which a step is logged, for debugging."""
_WARNED_STEP = 0.1
"""Seconds from which a step is a warning."""
_LOG_INTERVAL = 1.0
_RECORDED_STEP = 0.005
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.06, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SLOT_SECONDS, _SLOTS = 10.0, 6
log = structlog.get_logger()


class RecentMaximum:
    """The largest value of the last minute, for any number of readers."""

    def __init__(self) -> None:
        self._slots: deque[tuple[float, float]] = deque(maxlen=_SLOTS)
        """Start and largest value of each period."""

    def add(self, value: float) -> None:
        now = time.monotonic()
        if self._slots and now - self._slots[-1][0] < _SLOT_SECONDS:
            start, largest = self._slots[-1]
            self._slots[-1] = start, max(largest, value)
        else:
            self._slots.append((now, value))

    @property
    def value(self) -> float:
        earliest = time.monotonic() - _SLOT_SECONDS * _SLOTS
        return max((largest for start, largest in self._slots if start >= earliest), default=0.0)


class EventLoopMonitor:
    """Records event loop blocking. `start` begins the heartbeat; `measure` wraps requests."""

    def __init__(self, *, cpu: bool = False) -> None:
        """With `cpu`, also measure the CPU time of each step, at a cost of two microseconds per step."""
        self.clock = time.thread_time if cpu else _no_clock
        self.lag = PrometheusHistogram(_BUCKETS)
        self.hold = PrometheusHistogram(_BUCKETS)
        """Seconds of steps and callbacks, of those that take more than a moment."""
        self.work = PrometheusHistogram(_BUCKETS)
        """The same in CPU time, which does not depend on other load; 0 unless measured."""
        self.longest_lag, self.longest_hold, self.longest_work = RecentMaximum(), RecentMaximum(), RecentMaximum()
        self._measured_elsewhere: set[CodeType] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._log_after: dict[int, float] = {}
        """Earliest time of the next line, by level."""

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._due = time.perf_counter() + HEARTBEAT_INTERVAL
        self._timer = loop.call_later(HEARTBEAT_INTERVAL, self._heartbeat, loop)
        loop.set_task_factory(self._make_task)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            asyncio.get_running_loop().set_task_factory(None)

    def skip_tasks_of(self, function: Callable[..., Coroutine[Any, Any, Any]]) -> None:
        """Do not measure tasks of this function: it measures the work in it."""
        self._measured_elsewhere.add(function.__code__)

    def measure(self, work: Coroutine[Any, Any, T], route: str) -> MeasuredCoroutine[T]:
        """Wrap a coroutine so that each of its steps is measured."""
        return MeasuredCoroutine(work, self, route)

    def start_task(self, work: Coroutine[Any, Any, T], route: str) -> asyncio.Future[T]:
        """Start a task that belongs to a request, and measure each of its steps."""
        return asyncio.ensure_future(self.measure(work, route))

    def call(self, callback: Callable[[A], None], argument: A) -> None:
        """Call a callback of a connection and measure it."""
        started, used = time.perf_counter(), self.clock()
        try:
            callback(argument)
        finally:
            elapsed = time.perf_counter() - started
            if elapsed > _RECORDED_STEP:
                self.record_step(elapsed, self.clock() - used, callback.__qualname__)

    def _make_task(self, loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        if type(work) is CoroutineType and work.cr_code not in self._measured_elsewhere:
            work = self.measure(work, work.__qualname__)
        return asyncio.Task(work, loop=loop, **options)

    def record_step(self, seconds: float, busy: float, route: str) -> None:
        """Record a long step; `busy` is its CPU time."""
        self.hold.add(seconds)
        self.work.add(busy)
        self.longest_hold.add(seconds)
        self.longest_work.add(busy)
        if seconds > SLOW_STEP:
            now = time.monotonic()
            level = logging.WARNING if seconds >= _WARNED_STEP else logging.DEBUG
            if now >= self._log_after.get(level, 0.0):
                self._log_after[level] = now + _LOG_INTERVAL
                log.log(
                    level,
                    "event loop held",
                    route=route[:200],
                    milliseconds=round(seconds * 1000),
                    cpu_milliseconds=round(busy * 1000),
                )

    def _heartbeat(self, loop: asyncio.AbstractEventLoop) -> None:
        now = time.perf_counter()
        late = max(0.0, now - self._due)
        self.lag.add(late)
        self.longest_lag.add(late)
        self._due = now + HEARTBEAT_INTERVAL
        self._timer = loop.call_later(HEARTBEAT_INTERVAL, self._heartbeat, loop)


def _no_clock() -> float:
    return 0.0


class MeasuredCoroutine(Generator[Any, Any, T]):
    """An awaitable that runs a coroutine and measures each of its steps."""

    __slots__ = ("_monitor", "_route", "_work")

    def __init__(self, work: Coroutine[Any, Any, T], monitor: EventLoopMonitor, route: str) -> None:
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
            elapsed = time.perf_counter() - started
            if elapsed > _RECORDED_STEP:
                self._monitor.record_step(elapsed, self._monitor.clock() - used, self._route)

    def throw(self, kind: Any, value: BaseException | object = None, traceback: TracebackType | None = None) -> Any:
        return self._work.throw(cast(BaseException, kind if value is None else value))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)

    def close(self) -> None:
        self._work.close()
