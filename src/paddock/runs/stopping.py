"""Ends an entrypoint and all that it has started: asked first, then by force."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import structlog

from paddock.errors import PaddockError
from paddock.fleet.fleet import Fleet
from paddock.model.runs import EndedBy, RunState
from paddock.model.sandbox import Sandbox
from paddock.runs.ends import Cancel, Verdict
from paddock.sandbox.client import Ended

ANSWER = 5.0
"""Seconds for the box to take a signal."""
FORCED = 4.0
"""Seconds in which the box's daemon kills what does not end by itself."""
KILLED = 15.0
log = structlog.get_logger()


async def stop(
    verdict: Verdict,
    *,
    fleet: Fleet,
    sandbox: Sandbox,
    command: str,
    ended: asyncio.Future[Ended],
    cancel: Cancel,
    grace: float,
) -> None:
    """See to it that nothing of a run's entrypoint goes on. Never raises for what the box does."""
    lost = verdict.state is RunState.LOST
    if lost and verdict.ended_by is not EndedBy.BOX_SILENT:
        return  # There is nothing left to end, or nothing that could be reached.
    if not lost and not ended.done():
        await _ask(verdict, fleet, sandbox, command, ended, cancel, grace)
    # What the entrypoint has left in the background, too.
    await _try(fleet.backend.end_commands(sandbox.record), KILLED)


async def _ask(
    verdict: Verdict,
    fleet: Fleet,
    sandbox: Sandbox,
    command: str,
    ended: asyncio.Future[Ended],
    cancel: Cancel,
    grace: float,
) -> None:
    try:
        inside = await fleet.inside(sandbox.tenant, sandbox.id)
    except PaddockError:
        return
    patient = verdict.ended_by is not EndedBy.TIMEOUT and grace > 0 and not cancel.hard.is_set()
    if patient and await _try(inside.signal(command, "TERM"), ANSWER):
        await _either(ended, cancel.hard, grace)
    if not ended.done() and not cancel.hard.is_set() and await _try(inside.interrupt(command), ANSWER):
        await _either(ended, cancel.hard, FORCED)


async def _either(ended: asyncio.Future[Ended], hard: asyncio.Event, seconds: float) -> None:
    """Wait for the end, until the time is up or nobody wants to wait any longer."""
    forced = asyncio.ensure_future(hard.wait())
    try:
        waiting: list[asyncio.Future[Any]] = [ended, forced]
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        forced.cancel()


async def _try(call: Awaitable[Any], seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await call
    except (PaddockError, OSError, TimeoutError, RuntimeError) as error:
        log.info("a run's processes could not be ended that way", error=repr(error))
        return False
    return True
