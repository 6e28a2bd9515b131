"""Limits on concurrency, requests and tokens per minute, for routes, providers, tenants and keys."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import ClassVar, Protocol

from paddock.config.llm import RateLimitsConfig
from paddock.errors import QuotaExceeded
from paddock.llm.metering.key_authentication import KeyHolder

MINUTE_SECONDS = 60.0
CONCURRENCY_RETRY_SECONDS = 1.0
"""Seconds until a retry when the concurrency limit is reached; when a request will end is unknown."""


class RateLimited(QuotaExceeded):
    """A rate limit is exceeded."""

    code: ClassVar[str] = "RATE_LIMITED"

    def __init__(self, message: str = "", retry_after: float = CONCURRENCY_RETRY_SECONDS) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds after which a retry may succeed."""


class RateBounds(Protocol):
    """The limits of one subject: `RateConfig` of the configuration, or `Rates` of a key."""

    @property
    def concurrency(self) -> int | None: ...
    @property
    def requests_per_minute(self) -> int | None: ...
    @property
    def tokens_per_minute(self) -> int | None: ...


class _MinuteWindow:
    """Use within the last minute, in buckets of a second, so that its size does not depend on the traffic.

    A bucket counts until its whole second is a minute ago, so use is never underestimated.
    """

    __slots__ = ("_seconds", "total")

    def __init__(self) -> None:
        self._seconds: deque[list[int]] = deque()
        self.total = 0

    def add(self, now: float, amount: int) -> None:
        second = int(now)
        if self._seconds and self._seconds[-1][0] == second:
            self._seconds[-1][1] += amount
        else:
            self._seconds.append([second, amount])
        self.total += amount

    def advance_to(self, now: float) -> int:
        """Drop expired buckets, and return the use that still counts."""
        while self._seconds and self._seconds[0][0] + 1 + MINUTE_SECONDS <= now:
            self.total -= self._seconds.popleft()[1]
        return self.total

    def seconds_until_below(self, now: float, bound: int) -> float:
        """Return the seconds until the use falls below `bound`."""
        total = self.total
        for second, amount in self._seconds:
            total -= amount
            if total < bound:
                return second + 1 + MINUTE_SECONDS - now
        return 0.0


class _Meter:
    """The current use of one route, provider, tenant or key."""

    __slots__ = ("requests", "running", "tokens")

    def __init__(self, bounds: RateBounds) -> None:
        self.running = 0
        self.requests = _MinuteWindow() if bounds.requests_per_minute is not None else None
        self.tokens = _MinuteWindow() if bounds.tokens_per_minute is not None else None

    def may_be_full(self, bounds: RateBounds) -> bool:
        """Return whether a limit may have been reached. Expired use may still count, so the result may be a false yes,
        never a false no. Cheap, because it does not read the clock."""
        requests, tokens = self.requests, self.tokens
        return bool(
            (bounds.concurrency is not None and self.running >= bounds.concurrency)
            or (requests is not None and requests.total >= (bounds.requests_per_minute or 0))
            or (tokens is not None and tokens.total >= (bounds.tokens_per_minute or 0))
        )

    def is_idle(self, now: float) -> bool:
        # Advance both windows: expired use is dropped here even if no further request comes.
        counted = [window.advance_to(now) for window in (self.requests, self.tokens) if window is not None]
        return not self.running and not any(counted)


class RateLimitPermit:
    """Permission for one request. Call `release` when the request is over, however it ended."""

    __slots__ = ("_clock", "_forget", "_meters")

    def __init__(
        self,
        meters: list[tuple[str, _Meter]],
        clock: Callable[[], float],
        forget: Callable[[str, _Meter], None],
    ) -> None:
        self._meters = meters
        self._clock = clock
        self._forget = forget

    def release(self, tokens: int = 0) -> None:
        """Free the slot and count the request's tokens. Further calls have no effect."""
        meters, self._meters = self._meters, _NO_METERS
        for name, meter in meters:
            meter.running -= 1
            if tokens > 0 and meter.tokens is not None:
                meter.tokens.add(self._clock(), tokens)
            if not meter.running and meter.requests is None and meter.tokens is None:
                self._forget(name, meter)


_NO_METERS: list[tuple[str, _Meter]] = []
_UNLIMITED = RateLimitPermit(_NO_METERS, time.monotonic, lambda name, meter: None)
"""The permit of requests without any limit."""


class RateLimits:
    """Counts active requests and the use within the last minute."""

    def __init__(
        self, tenant_limits: RateLimitsConfig | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tenants = tenant_limits or RateLimitsConfig()
        self._clock = clock
        self._meters: dict[str, _Meter] = {}
        self._swept_at = clock()

    def admit(
        self, holder: KeyHolder | None, route: str, route_limits: RateBounds, provider: str, provider_limits: RateBounds
    ) -> RateLimitPermit:
        """Admit a request. Raises `RateLimited`, in which case nothing is counted.

        A fallback of an admitted request is admitted without its holder.
        """
        limited: list[tuple[str, str, RateBounds]] = []
        if holder is not None:
            if _is_bounded(holder.limits):
                limited.append(("key ", holder.caller.key_id, holder.limits))
            if _is_bounded(self._tenants):
                limited.append(("tenant ", holder.caller.tenant, self._tenants))
        if _is_bounded(route_limits):
            limited.append(("model ", route, route_limits))
        if _is_bounded(provider_limits):
            limited.append(("provider ", provider, provider_limits))
        if not limited:
            return _UNLIMITED
        now = self._clock()
        if now - self._swept_at >= MINUTE_SECONDS:
            self._sweep(now)
        entered: list[tuple[str, _Meter]] = []
        for kind, name, bounds in limited:
            full_name = kind + name
            meter = self._meters.get(full_name)
            if meter is None:
                meter = _Meter(bounds)
            elif meter.may_be_full(bounds) and (problem := _find_exceeded(meter, bounds, now)) is not None:
                raise _rate_limited(kind, name, bounds, *problem)
            entered.append((full_name, meter))
        for full_name, meter in entered:
            self._meters[full_name] = meter
            meter.running += 1
            if meter.requests is not None:
                meter.requests.add(now, 1)
        return RateLimitPermit(entered, self._clock, self._forget)

    def __len__(self) -> int:
        """Return the number of routes, providers, tenants and keys with a meter."""
        return len(self._meters)

    def _forget(self, name: str, meter: _Meter) -> None:
        if self._meters.get(name) is meter:
            del self._meters[name]

    def _sweep(self, now: float) -> None:
        self._swept_at = now
        for name in [name for name, meter in self._meters.items() if meter.is_idle(now)]:
            del self._meters[name]


def _is_bounded(limits: RateBounds) -> bool:
    return not (limits.concurrency is limits.requests_per_minute is limits.tokens_per_minute is None)


def _find_exceeded(meter: _Meter, bounds: RateBounds, now: float) -> tuple[str, float] | None:
    """Return the reached limit and the seconds to wait; the longest wait if several are reached."""
    found: tuple[str, float] | None = None
    if bounds.concurrency is not None and meter.running >= bounds.concurrency:
        found = f"has reached its limit of {bounds.concurrency} concurrent requests", CONCURRENCY_RETRY_SECONDS
    if meter.requests is not None:
        found = _check_window(meter.requests, bounds.requests_per_minute, "requests", now) or found
    if meter.tokens is not None:
        tokens = _check_window(meter.tokens, bounds.tokens_per_minute, "tokens", now)
        found = max(found, tokens, key=lambda one: one[1]) if found and tokens else found or tokens
    return found


def _check_window(window: _MinuteWindow, bound: int | None, unit: str, now: float) -> tuple[str, float] | None:
    if bound is None or window.advance_to(now) < bound:
        return None
    return f"has used its {bound} {unit} per minute", window.seconds_until_below(now, bound)


def _rate_limited(kind: str, name: str, bounds: RateBounds, reason: str, wait: float) -> RateLimited:
    return RateLimited(f"{kind}{name} {reason}; try again in {max(1, round(wait))} s", wait)
