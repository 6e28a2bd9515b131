"""Circuit breaker: pauses an upstream that keeps failing, then probes it with one request at a time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

FAILURE_THRESHOLD = 5
FAILURE_WINDOW = 30.0
FIRST_PAUSE = 1.0
MAX_PAUSE = 60.0
PROBE_SECONDS = 30.0


class CircuitBreaker:
    """Health of one upstream.

    After `failures` in a row `within` so many seconds it is paused for `first_rest` seconds, then one request may probe
    it; each failed probe doubles the next pause, up to `longest_rest`. Every request that `seconds_until_allowed` let
    pass must be followed by one of `record_success`, `record_failure` and `record_cancellation`.
    """

    __slots__ = (
        "_clock", "_failed_at", "_first_rest", "_longest_rest", "_probe_until", "_rest", "_rests_until", "_within",
        "last_problem",
    )  # fmt: skip

    def __init__(
        self,
        failures: int = FAILURE_THRESHOLD,
        within: float = FAILURE_WINDOW,
        first_rest: float = FIRST_PAUSE,
        longest_rest: float = MAX_PAUSE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._within = within
        self._first_rest = first_rest
        self._longest_rest = longest_rest
        self._clock = clock
        self._failed_at: deque[float] = deque(maxlen=failures)
        self._rest = 0.0
        """Length of the last pause; 0 while the circuit is closed."""
        self._rests_until = 0.0
        self._probe_until: float | None = None
        """Until when a probe is waited for, while one is in flight."""
        self.last_problem = ""
        """Message of the last recorded failure."""

    @property
    def is_open(self) -> bool:
        """True while the upstream is paused or only probed."""
        return self._rest > 0

    def seconds_until_allowed(self) -> float | None:
        """Return None if a request may be sent, otherwise the seconds to wait."""
        if not self._rest:
            return None
        now = self._clock()
        if now < self._rests_until:
            return self._rests_until - now
        if self._probe_until is not None and now < self._probe_until:
            return min(self._first_rest, self._probe_until - now)
        # A probe that never reports its end must not keep the circuit open for ever.
        self._probe_until = now + PROBE_SECONDS
        return None

    def record_success(self) -> None:
        """Close the circuit after any answer; a request that began before the pause counts too."""
        if self._rest or self._failed_at:
            self._failed_at.clear()
            self._rest = 0.0
            self._probe_until = None

    def record_failure(self, problem: str = "") -> None:
        """Count a failure: unreachable, timed out, or a server error."""
        self.last_problem = problem
        now = self._clock()
        if self._rest:
            # Requests in flight when the circuit opened carry no new information.
            if self._probe_until is not None:
                self._open_for(now, min(self._rest * 2, self._longest_rest))
            return
        failed = self._failed_at
        failed.append(now)
        if len(failed) == failed.maxlen and now - failed[0] <= self._within:
            self._open_for(now, self._first_rest)

    def record_cancellation(self) -> None:
        """Release the probe of a request that was cancelled without a result."""
        self._probe_until = None

    def _open_for(self, now: float, rest: float) -> None:
        self._rest = rest
        self._rests_until = now + rest
        self._probe_until = None
        self._failed_at.clear()
