"""Count the bytes of sandboxes and tenants in 24 hours; the counts survive restarts of the server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta

from paddock.config.network import NetworkConfig
from paddock.model.network import ByteCount, ByteCountScope
from paddock.store.byte_count_store import ByteCountStore

DAY_SECONDS = 86400.0


class _Window:
    """Bytes since a time, in seconds of the system clock."""

    __slots__ = ("bytes", "started")

    def __init__(self, started: float, count: int = 0) -> None:
        self.started = started
        self.bytes = count


class DailyByteCounts:
    """Counts bytes in windows of 24 hours, each of which begins with its first byte.

    The thread of the relay counts; the server's thread loads and stores.
    """

    def __init__(self, config: NetworkConfig, store: ByteCountStore, clock: Callable[[], float] = time.time) -> None:
        self._limits = {
            ByteCountScope.SANDBOX: config.max_daily_bytes,
            ByteCountScope.TENANT: config.max_tenant_daily_bytes,
        }
        self._store = store
        self._clock = clock
        self._windows: dict[tuple[ByteCountScope, str], _Window] = {}
        self._changed: set[tuple[ByteCountScope, str]] = set()

    @property
    def is_limited(self) -> bool:
        """True if there is a limit; without one nothing is counted."""
        return any(limit is not None for limit in self._limits.values())

    async def load(self, sandbox_id: str, tenant: str) -> None:
        """Continue with the stored counts of a sandbox and its tenant."""
        if not self.is_limited:
            return
        for scope, owner in _owners(sandbox_id, tenant):
            if (scope, owner) not in self._windows and (stored := await self._store.find(scope, owner)):
                # A window in the future comes from a clock that was wrong.
                started = min(stored.started_at.timestamp(), self._clock())
                self._windows.setdefault((scope, owner), _Window(started, stored.bytes))

    def add(self, sandbox_id: str, tenant: str, count: int) -> str | None:
        """Count bytes of a connection; return which limit is reached, or `None`."""
        reached = None
        now = self._clock()
        for scope, owner in _owners(sandbox_id, tenant):
            limit = self._limits[scope]
            if limit is None:
                continue
            window = self._windows.get((scope, owner))
            if window is None or now - window.started >= DAY_SECONDS:
                window = self._windows[scope, owner] = _Window(now)
            window.bytes += count
            if count:
                self._changed.add((scope, owner))
            if window.bytes >= limit and reached is None:
                reached = _limit_message(scope, window.started + DAY_SECONDS)
        return reached

    def forget_sandbox(self, sandbox_id: str) -> None:
        """Free the memory of a sandbox that has ended."""
        self._windows.pop((ByteCountScope.SANDBOX, sandbox_id), None)

    def take_changed(self) -> list[ByteCount]:
        """Return the counts that changed since the last call. Called on the relay's thread."""
        changed, self._changed = self._changed, set()
        return [
            ByteCount(
                scope=scope,
                owner=owner,
                started_at=datetime.fromtimestamp(window.started, UTC),
                bytes=window.bytes,
            )
            for scope, owner in changed
            if (window := self._windows.get((scope, owner))) is not None
        ]

    def mark_changed(self, counts: Iterable[ByteCount]) -> None:
        """Return counts that could not be stored to `take_changed`. Called on the relay's thread."""
        self._changed.update((each.scope, each.owner) for each in counts)

    async def store(self, counts: Sequence[ByteCount]) -> None:
        """Store counts, and delete counts of windows that have ended. Raises `PaddockError`."""
        ended = datetime.fromtimestamp(self._clock(), UTC) - timedelta(seconds=DAY_SECONDS)
        await self._store.replace(counts, ended)


def _owners(sandbox_id: str, tenant: str) -> tuple[tuple[ByteCountScope, str], ...]:
    return (ByteCountScope.SANDBOX, sandbox_id), (ByteCountScope.TENANT, tenant)


def _limit_message(scope: ByteCountScope, end: float) -> str:
    until = datetime.fromtimestamp(end, UTC).strftime("%Y-%m-%d %H:%M UTC")
    if scope is ByteCountScope.TENANT:
        return (
            f"The sandboxes of the tenant have used their bytes of 24 hours, until {until} "
            "(network.max_tenant_daily_bytes)."
        )
    return f"The sandbox has used its bytes of 24 hours, until {until} (network.max_daily_bytes)."
