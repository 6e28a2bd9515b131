"""Measures how a server process does while it is attacked: how long its event loop and other clients are held up, its
memory and its CPU time."""

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
HOLD = 0.05
"""CPU seconds that no step of a request and no callback of a connection may take."""
LAG = 0.15
"""Seconds by which no timer of the server may be late, on a machine that does nothing else."""


class HealthWaits:
    """Seconds that requests to /health took, asked for over a connection of their own."""

    def __init__(self, server: Server) -> None:
        self.taken: list[float] = []
        self._address = server.domain
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)

    @property
    def longest(self) -> float:
        return max(self.taken)

    @contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join(120)
            assert not self._thread.is_alive(), "the server did not answer for 120 seconds"

    def _ask(self) -> None:
        connection = http.client.HTTPConnection(self._address, timeout=120)
        while not self._stop.is_set() or not self.taken:
            started = time.monotonic()
            connection.request("GET", "/health")
            connection.getresponse().read()
            self.taken.append(time.monotonic() - started)
            self._stop.wait(_PAUSE)
        connection.close()


@contextmanager
def watched(server: Server) -> Iterator[HealthWaits]:
    """Ask a server for /health all the time, from a thread."""
    waits = HealthWaits(server)
    with waits.running():
        yield waits


def resident(server: Server) -> int:
    """Bytes of memory that the server process has now."""
    assert server.process is not None
    pages = int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(server: Server) -> float:
    """CPU time that the server process has used so far."""
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


class OwnLateness:
    """How late a thread of this process is woken up: the load of the machine makes the server's timers late too."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._measure, daemon=True)

    @contextmanager
    def running(self) -> Iterator[OwnLateness]:
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
    taken = []
    for _ in range(60):
        started = time.thread_time()
        sum(range(200_000))
        taken.append(time.thread_time() - started)
    return max(taken) / sorted(taken)[len(taken) // 10]


@contextmanager
def held_briefly(server: Server, client: httpx.Client) -> Iterator[None]:
    """Fail if the server's event loop is held for long within the block. The bounds grow with the machine's load."""
    before, noise = EventLoopTimes(client), cpu_noise()
    with watched(server) as waits, OwnLateness().running() as lateness:
        yield
    after = EventLoopTimes(client)
    bound = HOLD * max(1.0, noise, cpu_noise())
    held, late = after.longest_since(before, "work"), after.longest_since(before, "lag")
    lines = [line for line in server.log().splitlines() if "event loop held" in line]
    assert held < bound, f"held for more than {held:.3f} s, bound {bound:.3f}: {lines[-5:]}"
    assert late < LAG + 4 * lateness.longest, (
        f"late by more than {late:.3f} s, here {lateness.longest:.3f}: {lines[-5:]}"
    )
    assert waits.longest < 1.5 + 4 * lateness.longest, f"another client waited {waits.longest:.2f} s"
