"""Health monitoring of a run's sandbox: detects dead, silent and frozen sandboxes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paddock.errors import Conflict, PaddockError, SandboxNotFound
from paddock.events.event_log import EventLog
from paddock.fleet.fleet import Fleet
from paddock.model.events import EventType, sandbox_event_stream
from paddock.model.runs import EndedBy, RunReasonCode, RunState
from paddock.model.sandbox import Sandbox, SandboxHealth, SandboxState, SandboxStatus
from paddock.runs.execution.end_conditions import RunEndVerdict

MAX_UNANSWERED_REQUESTS = 3
"""Consecutive requests that the daemon leaves unanswered."""
END_CAUSE_TEXTS = {"deleted": "somebody deleted it", "expired": "its time was up", "idle": "nobody used it"}
END_CAUSE_CODES = {
    "deleted": RunReasonCode.SANDBOX_DELETED,
    "expired": RunReasonCode.SANDBOX_EXPIRED,
    "idle": RunReasonCode.SANDBOX_IDLE,
}
EVENT_PAGE_SIZE = 256


@dataclass(frozen=True)
class SandboxHealthTimeouts:
    """Timeouts in seconds after which a sandbox counts as lost."""

    check_interval: float = 2.0
    """Interval of checks."""
    answer_timeout: float = 10.0
    """Timeout of one request, and time between the first and the last unanswered one."""
    freeze_limit: float = 60.0
    """Time that a sandbox may stay frozen; snapshots also freeze it briefly."""


class SandboxHealthMonitor:
    """Health monitor of one sandbox."""

    def __init__(self, fleet: Fleet, sandbox: Sandbox, timeouts: SandboxHealthTimeouts) -> None:
        self._fleet = fleet
        self._sandbox = sandbox
        self._timeouts = timeouts
        self._check_requested = asyncio.Event()
        self._failures = 0
        self._failing_since = 0.0
        self._paused_since: float | None = None
        self._clock: tuple[float, float] | None = None
        """Last clock value of the sandbox, and when it was first seen."""

    def check_now(self) -> None:
        """Check the sandbox now, after an error."""
        self._check_requested.set()

    async def status(self) -> SandboxStatus:
        try:
            return await self._fleet.backend.status(self._sandbox.record)
        except OSError:  # Being removed.
            return SandboxStatus(health=SandboxHealth.GONE, message="the sandbox is gone")

    async def wait_for_failure(self) -> RunEndVerdict:
        """Return the verdict once the sandbox is dead, unresponsive or gone."""
        ended = asyncio.ensure_future(self._fleet.backend.wait(self._sandbox.record))
        try:
            while True:
                verdict = await self._check()
                if verdict is not None:
                    return verdict
                await self._wait_until_next_check(ended)
        finally:
            ended.cancel()
            await asyncio.wait([ended])

    async def _wait_until_next_check(self, ended: asyncio.Future[SandboxStatus]) -> None:
        requested = asyncio.ensure_future(self._check_requested.wait())
        waiting: list[asyncio.Future[Any]] = [ended, requested]
        try:
            await asyncio.wait(waiting, timeout=self._timeouts.check_interval, return_when=asyncio.FIRST_COMPLETED)
        finally:
            requested.cancel()
        if self._check_requested.is_set():
            self._check_requested.clear()
            # The fleet may notice the end a moment later.
            await asyncio.sleep(min(0.05, self._timeouts.check_interval))

    async def _check(self) -> RunEndVerdict | None:
        status = await self.status()
        now = asyncio.get_running_loop().time()
        if status.health is SandboxHealth.GONE:
            return await self._sandbox_gone(status)
        if status.health is SandboxHealth.PAUSED:
            self._failures = 0
            self._paused_since = now if self._paused_since is None else self._paused_since
            if now - self._paused_since < self._timeouts.freeze_limit:
                return None
            reason = f"the sandbox has been frozen for {now - self._paused_since:.0f} seconds"
            seconds = f"{now - self._paused_since:.0f}"
            return _lost(EndedBy.SANDBOX_FROZEN, reason, status, RunReasonCode.SANDBOX_FROZEN, seconds=seconds)
        self._paused_since = None
        return await self._ping_daemon(status)

    async def _ping_daemon(self, status: SandboxStatus) -> RunEndVerdict | None:
        try:
            daemon = await self._fleet.running_client(self._sandbox.tenant, self._sandbox.id)
            daemon_state = await daemon.state(timeout=self._timeouts.answer_timeout)
        except (Conflict, SandboxNotFound):
            return None  # The sandbox is being paused, resumed or ended.
        except (PaddockError, RuntimeError) as error:  # aiohttp's error for a client closed by the fleet.
            after = await self.status()
            if after.health is not SandboxHealth.RUNNING:
                return await self._sandbox_gone(after) if after.health is SandboxHealth.GONE else None
            now = asyncio.get_running_loop().time()
            self._failing_since = self._failing_since if self._failures else now
            self._failures += 1
            # A busy daemon may refuse several requests at once.
            if self._failures < MAX_UNANSWERED_REQUESTS or now - self._failing_since < self._timeouts.answer_timeout:
                return None
            reason = f"the sandbox runs, but its daemon did not answer {self._failures} times in a row: {error}"
            params = {"count": str(self._failures), "detail": str(error)}
            return _lost(EndedBy.SANDBOX_SILENT, reason, status, RunReasonCode.SANDBOX_SILENT, **params)
        self._failures = 0
        return self._compare_clock(daemon_state, status)

    def _compare_clock(self, daemon_state: Mapping[str, Any], status: SandboxStatus) -> RunEndVerdict | None:
        now = asyncio.get_running_loop().time()
        clock = daemon_state.get("uptime_seconds")
        if not isinstance(clock, int | float):
            return None
        if self._clock is None or self._clock[0] != clock:
            self._clock = clock, now
        elif now - self._clock[1] >= self._timeouts.freeze_limit:
            reason = f"the clock of the sandbox has not moved for {now - self._clock[1]:.0f} seconds"
            seconds = f"{now - self._clock[1]:.0f}"
            return _lost(EndedBy.SANDBOX_FROZEN, reason, status, RunReasonCode.SANDBOX_FROZEN, seconds=seconds)
        return None

    async def _sandbox_gone(self, status: SandboxStatus) -> RunEndVerdict:
        if status.reason == "out_of_memory":
            reason = "the sandbox ended for want of memory"
            return _lost(EndedBy.OUT_OF_MEMORY, reason, status, RunReasonCode.OUT_OF_MEMORY)
        try:
            sandbox = await self._fleet.get(self._sandbox.tenant, self._sandbox.id)
            ours = sandbox.state in (SandboxState.STOPPING, SandboxState.TERMINATED)
            cause = sandbox.reason or "" if ours else ""
        except SandboxNotFound:
            cause = "deleted"
        except PaddockError:
            cause = ""
        reason = f"the sandbox ended: {END_CAUSE_TEXTS.get(cause) or status.message or 'nobody knows why'}"
        code = END_CAUSE_CODES.get(cause, RunReasonCode.SANDBOX_ENDED)
        detail = "" if cause in END_CAUSE_CODES else status.message or ""
        return _lost(EndedBy.SANDBOX_DIED, reason, status, code, detail=detail)


async def find_full_disk_event(events: EventLog, sandbox: Sandbox) -> Mapping[str, Any] | None:
    """Return data of the last disk-full event, after which the sandbox's processes were killed."""
    found: Mapping[str, Any] | None = None
    after = 0
    while True:
        page = await events.read(sandbox_event_stream(sandbox.id), after, EVENT_PAGE_SIZE)
        for event in page:
            found = event.data if event.type is EventType.DISK_FULL else found
        if len(page) < EVENT_PAGE_SIZE:
            return found
        after = page[-1].number


def _lost(ended_by: EndedBy, reason: str, status: SandboxStatus, code: RunReasonCode, **params: str) -> RunEndVerdict:
    sandbox = {name: value for name, value in status.model_dump(mode="json").items() if value is not None}
    evidence = {"sandbox": sandbox}
    return RunEndVerdict(
        state=RunState.LOST, ended_by=ended_by, reason=reason, code=code, params=params, evidence=evidence
    )
