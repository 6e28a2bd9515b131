"""Measures how a server process does while it is attacked: what other clients wait, its memory and its CPU time."""

from __future__ import annotations

import http.client
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.server import Server

_PAUSE = 0.01


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
