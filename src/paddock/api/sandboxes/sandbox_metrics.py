"""Route for the resource usage of one sandbox."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from datetime import UTC, datetime

from fastapi import APIRouter
from pydantic import AwareDatetime

from paddock.api.http.authorization import SandboxReader
from paddock.api.http.body_models import ResponseBody
from paddock.api.http.error_responses import openapi_errors
from paddock.api.services import ApiServices
from paddock.errors import PaddockError
from paddock.model.sandbox import Sandbox, SandboxState

MAX_SAMPLES = 60
_SAMPLE_TTL = 1.0
"""Seconds for which a measurement is reused."""
_DISK_TTL = 30.0
"""Seconds for which a disk measurement is reused; measuring visits every file."""
_MAX_SANDBOXES = 1000
_MIB = 2**20


class MetricsSample(ResponseBody):
    at: AwareDatetime
    cpu: float | None
    """CPUs in use."""
    memory: int | None
    """Bytes in use."""
    pids: int | None
    """Processes and threads."""


class SandboxMetricsResponse(ResponseBody):
    samples: list[MetricsSample]
    """One sample per request, oldest first, the last one taken now. Empty unless the sandbox is running."""
    cpu_limit: float | None
    memory_limit: int | None
    pids_limit: int | None
    disk: int | None
    """Bytes written by the sandbox."""
    disk_limit: int | None


class SandboxUsageMeter:
    """Measures sandboxes on request and keeps the latest samples."""

    def __init__(self, services: ApiServices) -> None:
        self._services = services
        self._samples: OrderedDict[str, deque[MetricsSample]] = OrderedDict()
        self._disk: OrderedDict[str, tuple[float, int | None]] = OrderedDict()
        self._measured: dict[str, float] = {}

    async def measure(self, sandbox: Sandbox) -> SandboxMetricsResponse:
        running = sandbox.state is SandboxState.RUNNING
        if running and time.monotonic() - self._measured.get(sandbox.id, -_SAMPLE_TTL) >= _SAMPLE_TTL:
            self._measured[sandbox.id] = time.monotonic()
            samples = self._samples.setdefault(sandbox.id, deque(maxlen=MAX_SAMPLES))
            samples.append(await self._take_sample(sandbox))
            self._samples.move_to_end(sandbox.id)
            while len(self._samples) > _MAX_SANDBOXES:
                forgotten, _ = self._samples.popitem(last=False)
                self._measured.pop(forgotten, None)
        limits = self._services.fleet.kinds.default_limits(None).model_copy(
            update=sandbox.limits.model_dump(exclude_none=True)
        )
        return SandboxMetricsResponse(
            samples=list(self._samples.get(sandbox.id, ())) if running else [],
            cpu_limit=limits.cpu,
            memory_limit=limits.memory,
            pids_limit=limits.pids,
            disk=await self._disk_used(sandbox),
            disk_limit=limits.disk,
        )

    async def _take_sample(self, sandbox: Sandbox) -> MetricsSample:
        now = datetime.now(UTC)
        try:
            report = await self._services.fleet.client(sandbox).metrics()
        except PaddockError:
            report = {}
        count, share = _plausible_number(report.get("cpu_count")), _plausible_number(report.get("cpu_used_pct"))
        memory, pids = _plausible_number(report.get("mem_used_mib")), _plausible_number(report.get("pids"))
        return MetricsSample(
            at=now,
            cpu=None if count is None or share is None else round(count * share / 100, 3),
            memory=None if memory is None else round(memory * _MIB),
            pids=None if pids is None else round(pids),
        )

    async def _disk_used(self, sandbox: Sandbox) -> int | None:
        if not sandbox.state.alive:
            return None
        at, used = self._disk.get(sandbox.id, (-_DISK_TTL, None))
        if time.monotonic() - at >= _DISK_TTL:
            try:
                used = await self._services.fleet.backend.disk_used(sandbox.record)
            except (PaddockError, OSError):
                used = None
            self._disk[sandbox.id] = time.monotonic(), used
            while len(self._disk) > _MAX_SANDBOXES:
                self._disk.popitem(last=False)
        return used


def create_router(services: ApiServices) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["Diagnostics"])
    meter = SandboxUsageMeter(services)

    @router.get("/sandboxes/{sandbox_id}/metrics", responses=openapi_errors(404))
    async def get_sandbox_metrics(sandbox_id: str, principal: SandboxReader) -> SandboxMetricsResponse:
        """Return the sandbox's resource usage and limits, as reported by its own daemon."""
        return await meter.measure(await services.fleet.get(principal.tenant, sandbox_id))

    return router


def _plausible_number(value: object) -> float | None:
    """Return a plausible number, or `None`: a sandbox's report is untrusted."""
    usable = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**53
    return float(value) if usable else None  # type: ignore[arg-type]
