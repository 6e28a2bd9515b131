"""Leaves an upstream alone that keeps failing, and tries it again with one request at a time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

FAILURES = 5
WITHIN = 30.0
FIRST_REST = 1.0
LONGEST_REST = 60.0
PROBE_TIME = 30.0


class Circuit:
    """What is known of the health of one upstream.

    After `failures` in a row `within` so many seconds it is left alone for `first_rest` seconds, then one request may
    try it; each time that fails the next rest is twice as long, up to `longest_rest`. Every request that `allow` let
    pass must be followed by one of `succeeded`, `failed` and `cancelled`.
    """

    __slots__ = (
        "_clock", "_failed_at", "_first_rest", "_longest_rest", "_probe_until", "_rest", "_rests_until", "_within",
    )  # fmt: skip

    def __init__(
        self,
        failures: int = FAILURES,
        within: float = WITHIN,
        first_rest: float = FIRST_REST,
        longest_rest: float = LONGEST_REST,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._within = within
        self._first_rest = first_rest
        self._longest_rest = longest_rest
        self._clock = clock
        self._failed_at: deque[float] = deque(maxlen=failures)
        self._rest = 0.0
        """How long the last rest was; none while the circuit is closed."""
        self._rests_until = 0.0
        self._probe_until: float | None = None
        """While a request tries an upstream that has rested, until when it is waited for."""

    @property
    def open(self) -> bool:
        """Whether the upstream is left alone, or only tried."""
        return self._rest > 0

    def allow(self) -> float | None:
        """Nothing if a request may be sent, otherwise the seconds to wait."""
        if not self._rest:
            return None
        now = self._clock()
        if now < self._rests_until:
            return self._rests_until - now
        if self._probe_until is not None and now < self._probe_until:
            return min(self._first_rest, self._probe_until - now)
        # A probe whose end nobody told must not keep the circuit open for ever.
        self._probe_until = now + PROBE_TIME
        return None

    def succeeded(self) -> None:
        """The upstream answered, whatever it said: also one that began before the rest shows that it works."""
        if self._rest or self._failed_at:
            self._failed_at.clear()
            self._rest = 0.0
            self._probe_until = None

    def failed(self) -> None:
        """It could not be reached, took too long, or said that it is broken."""
        now = self._clock()
        if self._rest:
            # Those that were under way when it opened say nothing new.
            if self._probe_until is not None:
                self._open(now, min(self._rest * 2, self._longest_rest))
            return
        failed = self._failed_at
        failed.append(now)
        if len(failed) == failed.maxlen and now - failed[0] <= self._within:
            self._open(now, self._first_rest)

    def cancelled(self) -> None:
        """The request was given up before the upstream could show anything: another may try."""
        self._probe_until = None

    def _open(self, now: float, rest: float) -> None:
        self._rest = rest
        self._rests_until = now + rest
        self._probe_until = None
        self._failed_at.clear()
