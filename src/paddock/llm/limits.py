"""How much may be asked at once and per minute, of a route, of a provider, by a tenant and by a key."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import ClassVar, Protocol

from paddock.config.llm import RateConfig
from paddock.errors import QuotaExceeded
from paddock.llm.callers import Holder

MINUTE = 60.0
FOR_A_PLACE = 1.0
"""Seconds to wait where nobody knows when one of the requests under way will end."""


class TooMany(QuotaExceeded):
    """Too much is asked at a time."""

    code: ClassVar[str] = "RATE_LIMITED"

    def __init__(self, message: str = "", retry_after: float = FOR_A_PLACE) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds after which it may be tried again."""


class Bounds(Protocol):
    """`RateConfig` of the configuration, or `Rates` of a key."""

    @property
    def concurrency(self) -> int | None: ...
    @property
    def requests_per_minute(self) -> int | None: ...
    @property
    def tokens_per_minute(self) -> int | None: ...


class _Window:
    """What was used within the last minute, to the second, so that its size does not depend on how much it was.

    A second's use counts until all of that second is a minute ago: never too little is counted.
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

    def pass_to(self, now: float) -> int:
        """What still counts now."""
        while self._seconds and self._seconds[0][0] + 1 + MINUTE <= now:
            self.total -= self._seconds.popleft()[1]
        return self.total

    def until_below(self, now: float, bound: int) -> float:
        """How long until less than `bound` counts."""
        total = self.total
        for second, amount in self._seconds:
            total -= amount
            if total < bound:
                return second + 1 + MINUTE - now
        return 0.0


class _Meter:
    """What one route, provider, tenant or key uses."""

    __slots__ = ("requests", "running", "tokens")

    def __init__(self, bounds: Bounds) -> None:
        self.running = 0
        self.requests = _Window() if bounds.requests_per_minute is not None else None
        self.tokens = _Window() if bounds.tokens_per_minute is not None else None

    def may_be_full(self, bounds: Bounds) -> bool:
        """Whether a bound may have been reached. What is over a minute old may still count here, so it says yes too
        often rather than too seldom, and is asked before the time is looked at."""
        requests, tokens = self.requests, self.tokens
        return bool(
            (bounds.concurrency is not None and self.running >= bounds.concurrency)
            or (requests is not None and requests.total >= (bounds.requests_per_minute or 0))
            or (tokens is not None and tokens.total >= (bounds.tokens_per_minute or 0))
        )

    def idle(self, now: float) -> bool:
        # Both are made to forget what no longer counts, which nobody else may do for long.
        counted = [window.pass_to(now) for window in (self.requests, self.tokens) if window is not None]
        return not self.running and not any(counted)


class Permit:
    """Leave to go on with one request. `leave` when it is over, however it ended."""

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

    def leave(self, tokens: int = 0) -> None:
        """Make room for others, and say how many tokens it took. Only the first time counts."""
        meters, self._meters = self._meters, _NONE
        for name, meter in meters:
            meter.running -= 1
            if tokens > 0 and meter.tokens is not None:
                meter.tokens.add(self._clock(), tokens)
            if not meter.running and meter.requests is None and meter.tokens is None:
                self._forget(name, meter)


_NONE: list[tuple[str, _Meter]] = []
_FREE = Permit(_NONE, time.monotonic, lambda name, meter: None)
"""For whatever is not limited at all."""


class Limits:
    """Counts what is under way, and what was asked within the last minute."""

    def __init__(self, tenant_limits: RateConfig | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._tenants = tenant_limits or RateConfig()
        self._clock = clock
        self._meters: dict[str, _Meter] = {}
        self._swept_at = clock()

    def enter(
        self, holder: Holder | None, route: str, route_limits: Bounds, provider: str, provider_limits: Bounds
    ) -> Permit:
        """Let a request begin. Raises `TooMany`, having counted nothing.

        A fallback of a request that was let in already is entered without its holder.
        """
        limited: list[tuple[str, str, Bounds]] = []
        if holder is not None:
            if _bounds(holder.limits):
                limited.append(("key ", holder.caller.key_id, holder.limits))
            if _bounds(self._tenants):
                limited.append(("tenant ", holder.caller.tenant, self._tenants))
        if _bounds(route_limits):
            limited.append(("model ", route, route_limits))
        if _bounds(provider_limits):
            limited.append(("provider ", provider, provider_limits))
        if not limited:
            return _FREE
        now = self._clock()
        if now - self._swept_at >= MINUTE:
            self._sweep(now)
        entered: list[tuple[str, _Meter]] = []
        for kind, name, bounds in limited:
            full_name = kind + name
            meter = self._meters.get(full_name)
            if meter is None:
                meter = _Meter(bounds)
            elif meter.may_be_full(bounds) and (problem := _exceeded(meter, bounds, now)) is not None:
                raise _too_many(kind, name, bounds, *problem)
            entered.append((full_name, meter))
        for full_name, meter in entered:
            self._meters[full_name] = meter
            meter.running += 1
            if meter.requests is not None:
                meter.requests.add(now, 1)
        return Permit(entered, self._clock, self._forget)

    def __len__(self) -> int:
        """How many routes, providers, tenants and keys something is remembered of."""
        return len(self._meters)

    def _forget(self, name: str, meter: _Meter) -> None:
        if self._meters.get(name) is meter:
            del self._meters[name]

    def _sweep(self, now: float) -> None:
        self._swept_at = now
        for name in [name for name, meter in self._meters.items() if meter.idle(now)]:
            del self._meters[name]


def _bounds(limits: Bounds) -> bool:
    return not (limits.concurrency is limits.requests_per_minute is limits.tokens_per_minute is None)


def _exceeded(meter: _Meter, bounds: Bounds, now: float) -> tuple[str, float] | None:
    """Which bound a meter has reached, and for how long; the longest wait if there are several."""
    found: tuple[str, float] | None = None
    if bounds.concurrency is not None and meter.running >= bounds.concurrency:
        found = f"has its {bounds.concurrency} requests under way", FOR_A_PLACE
    if meter.requests is not None:
        found = _used_up(meter.requests, bounds.requests_per_minute, "requests", now) or found
    if meter.tokens is not None:
        tokens = _used_up(meter.tokens, bounds.tokens_per_minute, "tokens", now)
        found = max(found, tokens, key=lambda one: one[1]) if found and tokens else found or tokens
    return found


def _used_up(window: _Window, bound: int | None, what: str, now: float) -> tuple[str, float] | None:
    if bound is None or window.pass_to(now) < bound:
        return None
    return f"has used its {bound} {what} per minute", window.until_below(now, bound)


def _too_many(kind: str, name: str, bounds: Bounds, what: str, wait: float) -> TooMany:
    return TooMany(f"{kind}{name} {what}; try again in {max(1, round(wait))} s", wait)
