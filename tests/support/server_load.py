"""Measure a server process under attack: delays of its event loop and of other clients, memory and CPU time."""

from __future__ import annotations

import http.client
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.support.server import Server

_PAUSE = 0.01
MAX_STEP_CPU = 0.05
"""CPU seconds that no step of a request and no callback of a connection may take."""
MAX_TIMER_LAG = 0.15
"""Seconds by which no timer of the server may be late, on a machine that does nothing else."""


class HealthRequestTimes:
    """Durations of requests to /health on a separate connection."""

    def __init__(self, server: Server) -> None:
        self.seconds: list[float] = []
        self._address = server.domain
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send_requests, daemon=True)

    @property
    def longest(self) -> float:
        return max(self.seconds)

    @contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join(120)
            assert not self._thread.is_alive(), "the server did not answer for 120 seconds"

    def _send_requests(self) -> None:
        connection = http.client.HTTPConnection(self._address, timeout=120)
        while not self._stop.is_set() or not self.seconds:
            started = time.monotonic()
            connection.request("GET", "/health")
            connection.getresponse().read()
            self.seconds.append(time.monotonic() - started)
            self._stop.wait(_PAUSE)
        connection.close()


@contextmanager
def watch_health(server: Server) -> Iterator[HealthRequestTimes]:
    """Request /health continuously from a thread."""
    waits = HealthRequestTimes(server)
    with waits.running():
        yield waits


def resident_memory(server: Server) -> int:
    """Return the resident memory of the server process in bytes."""
    assert server.process is not None
    pages = int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def server_cpu_seconds(server: Server) -> float:
    """Return the CPU time that the server process has used so far."""
    assert server.process is not None
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class EventLoopTimes:
    """The server's own measurements of its event loop, as histograms."""

    def __init__(self, client: httpx.Client) -> None:
        text = client.get("/v1/metrics").text
        self._counts: dict[str, list[tuple[float, int]]] = {}
        for name in ("work", "lag"):
            rows = re.findall(
                rf'^paddock_event_loop_{name}_seconds_bucket{{le="([^"]+)"}} ([0-9]+)$', text, re.MULTILINE
            )
            assert rows
            self._counts[name] = [(float(bound), int(count)) for bound, count in rows]

    def longest_since(self, before: EventLoopTimes, name: str) -> float:
        """Return the lower bound of the longest time measured since then."""
        longest = lower = 0.0
        known = 0
        for (bound, count), (_, earlier) in zip(self._counts[name], before._counts[name], strict=True):
            if count - earlier > known:
                longest, known = lower, count - earlier
            lower = bound
        return longest


class TimerLateness:
    """How late a timer of this process fires; the machine's load makes the server's timers late as well."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._measure, daemon=True)

    @contextmanager
    def running(self) -> Iterator[TimerLateness]:
        self._thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            self._thread.join()

    def _measure(self) -> None:
        while not self._stop.is_set():
            started = time.monotonic()
            self._stop.wait(_PAUSE)
            self.longest = max(self.longest, time.monotonic() - started - _PAUSE)


def cpu_noise() -> float:
    """Return the largest CPU time of a fixed amount of work relative to the usual one: other programs share caches."""
    seconds = []
    for _ in range(60):
        started = time.thread_time()
        sum(range(200_000))
        seconds.append(time.thread_time() - started)
    return max(seconds) / sorted(seconds)[len(seconds) // 10]


@contextmanager
def assert_event_loop_responsive(server: Server, client: httpx.Client) -> Iterator[None]:
    """Fail if the server's event loop is held for long within the block. The bounds grow with the machine's load."""
    before, noise = EventLoopTimes(client), cpu_noise()
    with watch_health(server) as health, TimerLateness().running() as lateness:
        yield
    after = EventLoopTimes(client)
    bound = MAX_STEP_CPU * max(1.0, noise, cpu_noise())
    longest_step, longest_lag = after.longest_since(before, "work"), after.longest_since(before, "lag")
    lines = [line for line in server.log().splitlines() if "event loop held" in line]
    assert longest_step < bound, f"held for more than {longest_step:.3f} s, bound {bound:.3f}: {lines[-5:]}"
    assert longest_lag < MAX_TIMER_LAG + 4 * lateness.longest, (
        f"late by more than {longest_lag:.3f} s, here {lateness.longest:.3f}: {lines[-5:]}"
    )
    assert health.longest < 1.5 + 4 * lateness.longest, f"another client waited {health.longest:.2f} s"
