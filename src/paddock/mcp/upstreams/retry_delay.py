"""Time between attempts to connect to a server that failed."""

from __future__ import annotations

from paddock.errors import Unavailable

FIRST_DELAY = 0.25
MAX_DELAY = 15.0


class RetryDelay:
    """Doubles with each failure. Requests within the time get the reason of the last failure."""

    def __init__(self) -> None:
        self._failures = 0
        self._retry_at = 0.0
        self._error: Unavailable | None = None

    def check(self, now: float) -> None:
        """Raise the last error if it is too early for another attempt."""
        if self._error is not None and now < self._retry_at:
            # Another object, since tracebacks and contexts are added to errors that are raised.
            raise type(self._error)(self._error.message)

    def failed(self, now: float, error: Unavailable) -> None:
        self._retry_at = now + min(MAX_DELAY, FIRST_DELAY * 2.0 ** min(self._failures, 16))
        self._failures += 1
        self._error = error

    def succeeded(self) -> None:
        self._failures = 0
        self._error = None
