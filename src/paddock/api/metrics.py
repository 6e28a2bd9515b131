"""Numbers: what one sandbox uses, and how the whole server does."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections import OrderedDict, deque
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse
from pydantic import AwareDatetime

import paddock
from paddock.api.access import Admin, Reader
from paddock.api.errors import documented
from paddock.api.services import Services
from paddock.api.wire import Said
from paddock.errors import PaddockError
from paddock.model.runs import RunState
from paddock.model.sandbox import Sandbox, SandboxState
from paddock.model.sessions import ApprovalState, SessionState
from paddock.telemetry.exposition import CONTENT_TYPE, Exposition
from paddock.telemetry.process import add_process

KEPT = 60
_FRESH = 1.0
"""Seconds for which nothing is measured again, however many look at it."""
_DISK_FRESH = 30.0
"""The same for the disk, of which every file has to be looked at."""
_MOST = 1000
_MIB = 2**20
_STATES: Mapping[str, type[StrEnum]] = {
    "sandboxes": SandboxState,
    "runs": RunState,
    "sessions": SessionState,
    "approvals": ApprovalState,
}
_TEXT: dict[int | str, dict[str, Any]] = {
    200: {"description": "As Prometheus reads it.", "content": {"text/plain": {"schema": {"type": "string"}}}}
}


class Sample(Said):
    at: AwareDatetime
    cpu: float | None
    """CPUs in use."""
    memory: int | None
    """Bytes in use."""
    pids: int | None
    """Processes and threads."""


class SandboxMetrics(Said):
    samples: list[Sample]
    """What was measured whenever somebody asked, oldest first, the last one now. None unless it is running."""
    cpu_limit: float | None
    memory_limit: int | None
    pids_limit: int | None
    disk: int | None
    """Bytes that it has written."""
    disk_limit: int | None


class Meter:
    """What sandboxes use, measured when somebody looks."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._samples: OrderedDict[str, deque[Sample]] = OrderedDict()
        self._disk: OrderedDict[str, tuple[float, int | None]] = OrderedDict()
        self._measured: dict[str, float] = {}

    async def look(self, sandbox: Sandbox) -> SandboxMetrics:
        running = sandbox.state is SandboxState.RUNNING
        if running and time.monotonic() - self._measured.get(sandbox.id, -_FRESH) >= _FRESH:
            self._measured[sandbox.id] = time.monotonic()
            samples = self._samples.setdefault(sandbox.id, deque(maxlen=KEPT))
            samples.append(await self._sample(sandbox))
            self._samples.move_to_end(sandbox.id)
            while len(self._samples) > _MOST:
                forgotten, _ = self._samples.popitem(last=False)
                self._measured.pop(forgotten, None)
        limits = self._services.fleet.kinds.limits(None).model_copy(update=sandbox.limits.model_dump(exclude_none=True))
        return SandboxMetrics(
            samples=list(self._samples.get(sandbox.id, ())) if running else [],
            cpu_limit=limits.cpu,
            memory_limit=limits.memory,
            pids_limit=limits.pids,
            disk=await self._used(sandbox),
            disk_limit=limits.disk,
        )

    async def _sample(self, sandbox: Sandbox) -> Sample:
        now = datetime.now(UTC)
        try:
            said = await self._services.fleet.client(sandbox).metrics()
        except PaddockError:
            said = {}
        count, share = _number(said.get("cpu_count")), _number(said.get("cpu_used_pct"))
        memory, pids = _number(said.get("mem_used_mib")), _number(said.get("pids"))
        return Sample(
            at=now,
            cpu=None if count is None or share is None else round(count * share / 100, 3),
            memory=None if memory is None else round(memory * _MIB),
            pids=None if pids is None else round(pids),
        )

    async def _used(self, sandbox: Sandbox) -> int | None:
        if not sandbox.state.alive:
            return None
        at, used = self._disk.get(sandbox.id, (-_DISK_FRESH, None))
        if time.monotonic() - at >= _DISK_FRESH:
            try:
                used = await self._services.fleet.backend.disk_used(sandbox.record)
            except (PaddockError, OSError):
                used = None
            self._disk[sandbox.id] = time.monotonic(), used
            while len(self._disk) > _MOST:
                self._disk.popitem(last=False)
        return used


def routes(services: Services) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["Diagnostics"])
    meter = Meter(services)

    @router.get("/sandboxes/{sandbox_id}/metrics", responses=documented(404))
    async def get_sandbox_metrics(sandbox_id: str, principal: Reader) -> SandboxMetrics:
        """What a sandbox uses of what it may. Its own daemon says so, whose word is as good as the sandbox is."""
        return await meter.look(await services.fleet.get(principal.tenant, sandbox_id))

    @router.get("/metrics", responses={**documented(), **_TEXT}, response_class=PlainTextResponse)
    async def get_metrics(principal: Admin) -> PlainTextResponse:
        """How the server does, for Prometheus. Numbers of models have been added up since the beginning."""
        return PlainTextResponse(await _exposed(services), media_type=CONTENT_TYPE)

    return router


async def _exposed(services: Services) -> str:
    counts = await services.counts.by_state()
    usage = await services.ledger.query(None, ("model", "provider"))
    disk = await asyncio.to_thread(shutil.disk_usage, services.config.data)
    told = Exposition()
    told.gauge("paddock_info", "Which Paddock this is.", [({"version": paddock.__version__}, 1)])
    for name, states in counts.items():
        # A series that vanishes at 0 looks like one that is not measured.
        known = sorted({*states, *map(str, _STATES.get(name, ()))})
        values = [({"state": state}, float(states.get(state, 0))) for state in known]
        told.gauge(f"paddock_{name}", f"How many {name} there are, by state.", values)
    requests = sorted(services.traffic.requests.items())
    answered = [({"method": method, "status": str(status)}, float(count)) for (method, status), count in requests]
    told.counter("paddock_http_requests_total", "Requests answered since the server started.", answered)
    for name, meaning in (
        ("requests", "Requests to models."),
        ("errors", "Requests to models without a whole answer."),
        ("refused", "Requests to models that the server itself refused."),
        ("input", "Tokens of prompts."),
        ("output", "Tokens of answers."),
        ("cost", "What models cost in US dollars, as far as it is known."),
    ):
        values = [
            ({"model": row.model or "", "provider": row.provider or ""}, float(getattr(row.tally, name)))
            for row in usage
        ]
        suffix = {"input": "input_tokens", "output": "output_tokens", "cost": "cost_dollars"}.get(name, name)
        told.counter(f"paddock_llm_{suffix}_total", meaning, values)
    told.gauge("paddock_archive_waiting_bytes", "Of exchanges not yet written.", [({}, services.archive.waiting_bytes)])
    told.counter("paddock_archive_lost_total", "Exchanges that could not be kept.", [({}, services.archive.lost)])
    told.histogram("paddock_http_request_seconds", "From a request to the end of its answer.", services.traffic.seconds)
    told.histogram("paddock_event_loop_lag_seconds", "How late timers of the server fire.", services.loop.lag)
    told.gauge(
        "paddock_event_loop_longest_hold_seconds",
        "Longest step of a request since this was last asked for.",
        [({}, services.loop.longest_hold)],
    )
    told.gauge(
        "paddock_event_loop_longest_work_seconds",
        "The same in CPU time; only measured with log.level debug.",
        [({}, services.loop.longest_work)],
    )
    told.gauge(
        "paddock_event_loop_longest_lag_seconds",
        "Latest timer since this was last asked for.",
        [({}, services.loop.longest_lag)],
    )
    services.loop.forget()
    add_process(told)
    told.gauge("paddock_disk_free_bytes", "Of the data directory.", [({}, disk.free)])
    return told.text()


def _number(value: object) -> float | None:
    """What a box says may be anything."""
    usable = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**53
    return float(value) if usable else None  # type: ignore[arg-type]
