"""Stop an entrypoint and all its processes: first by signal, then by force."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import structlog

from paddock.errors import PaddockError
from paddock.fleet.fleet import Fleet
from paddock.model.runs import EndedBy, RunState
from paddock.model.sandbox import Sandbox
from paddock.runs.execution.end_conditions import RunCancellation, RunEndVerdict
from paddock.sandbox.daemon.client import CommandEnded

SIGNAL_TIMEOUT = 5.0
"""Timeout of sending a signal."""
FORCED_KILL_TIMEOUT = 4.0
"""Timeout of the daemon's forced kill."""
KILL_ALL_TIMEOUT = 15.0
log = structlog.get_logger()


async def stop_entrypoint(
    verdict: RunEndVerdict,
    *,
    fleet: Fleet,
    sandbox: Sandbox,
    command: str,
    ended: asyncio.Future[CommandEnded],
    cancel: RunCancellation,
    grace: float,
) -> None:
    """Stop all processes of a run's entrypoint. Errors of the sandbox are logged, not raised."""
    lost = verdict.state is RunState.LOST
    if lost and verdict.ended_by is not EndedBy.SANDBOX_SILENT:
        return  # The sandbox is gone or unreachable.
    if not lost and not ended.done():
        await _request_stop(verdict, fleet, sandbox, command, ended, cancel, grace)
    # Includes background processes of the entrypoint.
    await _ignore_errors(fleet.backend.end_commands(sandbox.record), KILL_ALL_TIMEOUT)


async def _request_stop(
    verdict: RunEndVerdict,
    fleet: Fleet,
    sandbox: Sandbox,
    command: str,
    ended: asyncio.Future[CommandEnded],
    cancel: RunCancellation,
    grace: float,
) -> None:
    try:
        daemon = await fleet.running_client(sandbox.tenant, sandbox.id)
    except PaddockError:
        return
    graceful = verdict.ended_by is not EndedBy.TIMEOUT and grace > 0 and not cancel.hard.is_set()
    if graceful and await _ignore_errors(daemon.signal(command, "TERM"), SIGNAL_TIMEOUT):
        await _wait_for_end(ended, cancel.hard, grace)
    if (
        not ended.done()
        and not cancel.hard.is_set()
        and await _ignore_errors(daemon.interrupt(command), SIGNAL_TIMEOUT)
    ):
        await _wait_for_end(ended, cancel.hard, FORCED_KILL_TIMEOUT)


async def _wait_for_end(ended: asyncio.Future[CommandEnded], hard: asyncio.Event, seconds: float) -> None:
    """Wait for the end, the timeout or a hard cancellation."""
    forced = asyncio.ensure_future(hard.wait())
    try:
        waiting: list[asyncio.Future[Any]] = [ended, forced]
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        forced.cancel()


async def _ignore_errors(call: Awaitable[Any], seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await call
    except (PaddockError, OSError, TimeoutError, RuntimeError) as error:
        log.info("could not stop processes of run", error=repr(error))
        return False
    return True
