"""Runs one tool on the current tab and reports what came of it."""

from __future__ import annotations

import asyncio
import time

from ..results import Result, ToolError
from .engine import Stale
from .faults import ENDED, explained
from .kit import Call
from .report import BUSY, before, events_since, report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping
    from typing import Any

    from ..context import Context
    from .report import Before
    from .session import Session

LAST_CHANCE = 1.0
"""Seconds that a tool gets on a page which has not answered for longer than that already."""
CAUGHT = 2.0
"""Seconds without an answer after which a page that was acted on is taken to be caught in a script of its own."""
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
    started = session.begin()
    dialogs.quiet += quiet
    try:
        if calm and dialogs.pending:
            if quiet:
                # Whatever the page would ask next, it is being left.
                session.interrupt_soon(await session.current())
            await dialogs.clear(calm)
        asked = time.monotonic()
        earlier = await before(session)
        earlier.number = started
        # A page that is slow to answer has less time for the rest.
        if not (earlier.answered or dialogs.pending):
            loading = earlier.tab.leaving is not None or quiet
            seconds = max(1.0, seconds - (time.monotonic() - asked)) if loading else min(seconds, LAST_CHANCE)
        return await _run(context, session, function, arguments, seconds, earlier, hands, quiet)
    finally:
        dialogs.quiet -= quiet


async def _run(
    context: Context,
    session: Session,
    function: Callable[..., Awaitable[str | Result]],
    arguments: Mapping[str, Any],
    seconds: float,
    earlier: Before,
    hands: bool,
    leaving: bool,
) -> Result:
    if not session.alive:
        raise Stale(ENDED)
    try:
        if leaving and not (earlier.answered or session.dialogs.pending):
            await session.free(earlier.tab)
            earlier.tab = await session.current()
        call = Call(context, session, earlier.tab, seconds)
        acting = _awaited(function(call, **arguments))
        if hands and not (leaving or session.dialogs.pending):
            acting = _unless_caught(session, call, acting)
        done = await session.act(acting, seconds + SPARE)
        if hands:
            await session.settle(call.tab, seconds, earlier.number)
    except ToolError as error:
        return await _failed(session, earlier, error)
    except Exception as error:
        fault = explained(error, session)
        if not session.alive:
            raise fault from None
        late = isinstance(error, asyncio.TimeoutError) or "Timeout" in str(error)
        return await _failed(session, earlier, ToolError(BUSY) if late and not earlier.answered else fault)
    if hands or done is None:
        return await _told(session, earlier, done)
    result = done if isinstance(done, Result) else Result(done)
    events, files = events_since(session, earlier)
    result.text = "\n".join([result.text, *events])
    result.files += files
    return result


async def _told(session: Session, earlier: Before, done: str | Result | None) -> Result:
    if not isinstance(done, Result):
        return await report(session, earlier, done or "")
    told = await report(session, earlier, done.text)
    done.text, done.files = told.text, [*done.files, *told.files]
    done.structured = {**(told.structured or {}), **(done.structured or {})}
    return done


async def _awaited(work: Awaitable[str | Result]) -> str | Result:
    return await work


async def _unless_caught(session: Session, call: Call, acting: Coroutine[Any, Any, str | Result]) -> str | Result:
    """Await an action, but not on a page that it has caught in a script; nobody knows when that ends."""
    task = asyncio.ensure_future(acting)
    try:
        while not (await asyncio.wait({task}, timeout=1.0))[0]:
            tab = call.tab
            silent = not await session.peek(tab, CAUGHT)
            elsewhere = tab.leaving is not None or tab.page.is_closed() or session.dialogs.pending
            if silent and not elsewhere and not task.done():
                raise ToolError(f"this was probably done, but now {BUSY}")
        return task.result()
    finally:
        task.cancel()


async def _failed(session: Session, earlier: Before, error: ToolError) -> Result:
    """A failure, with what happened all the same."""
    if not earlier.answered or BUSY in str(error):
        return Result("\n".join([str(error), *events_since(session, earlier)[0]]), error=True)
    try:
        result = await asyncio.wait_for(report(session, earlier, str(error)), 3.0)
    except Exception:
        return Result(str(error), error=True)
    if session.journal.last == earlier.number and not any((result.structured or {}).get("changed", {}).values()):
        result.text = str(error)
    result.error = True
    return result
