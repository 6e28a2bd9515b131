"""Runs one tool on the current tab and reports what came of it."""

from __future__ import annotations

import asyncio

from ..results import Result, ToolError
from .engine import Stale
from .faults import ENDED, explained
from .kit import Call
from .report import before, events_since, report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from typing import Any

    from ..context import Context
    from .report import Before
    from .session import Session

BUSY = "the page is busy with a script of its own and does not answer; browser_reload or browser_navigate end that"
SPARE = 0.5
"""Seconds beyond its limit in which a function may still say itself that it took too long."""


async def run(
    context: Context,
    session: Session,
    function: Callable[..., Awaitable[str | Result]],
    arguments: Mapping[str, Any],
    seconds: float,
    calm: str,
    quiet: bool,
    hands: bool,
) -> Result:
    """Call `function`; with `calm`, dialogs nobody has answered are dismissed first for that reason."""
    dialogs = session.dialogs
    dialogs.begin()
    started = session.journal.last
    if calm and dialogs.pending:
        if quiet:
            # Whatever the page would ask next, it is being left.
            await session.interrupt(await session.current())
        await dialogs.clear(calm)
    earlier = await before(session)
    if not session.alive:
        raise Stale(ENDED)
    earlier.number = started
    dialogs.quiet += quiet
    try:
        await _wake(session, earlier, quiet)
        call = Call(context, session, earlier.tab, seconds)
        done = await session.act(_awaited(function(call, **arguments)), seconds + SPARE)
        if hands:
            await session.settle(call.tab, seconds)
    except ToolError as error:
        return await _failed(session, earlier, error)
    except Exception as error:
        fault = explained(error, session)
        if not session.alive:
            raise fault from None
        return await _failed(session, earlier, fault)
    finally:
        dialogs.quiet -= quiet
    if hands or done is None:
        return await _told(session, earlier, done)
    result = done if isinstance(done, Result) else Result(done)
    events, files = events_since(session, earlier)
    result.text = "\n".join([result.text, *events])
    result.files += files
    return result


async def _wake(session: Session, earlier: Before, leaving: bool) -> None:
    """See to it that the page answers; one that is being left is freed from what keeps it busy."""
    if earlier.answered or session.dialogs.pending:
        return
    if not leaving:
        raise ToolError(BUSY)
    await session.free(earlier.tab)
    earlier.tab = await session.current()


async def _told(session: Session, earlier: Before, done: str | Result | None) -> Result:
    if not isinstance(done, Result):
        return await report(session, earlier, done or "")
    told = await report(session, earlier, done.text)
    done.text, done.files = told.text, [*done.files, *told.files]
    done.structured = {**(told.structured or {}), **(done.structured or {})}
    return done


async def _awaited(work: Awaitable[str | Result]) -> str | Result:
    return await work


async def _failed(session: Session, earlier: Before, error: ToolError) -> Result:
    """A failure, with what happened all the same."""
    try:
        result = await asyncio.wait_for(report(session, earlier, str(error)), 3.0)
    except Exception:
        return Result(str(error), error=True)
    if session.journal.last == earlier.number and not any((result.structured or {}).get("changed", {}).values()):
        result.text = str(error)
    result.error = True
    return result
