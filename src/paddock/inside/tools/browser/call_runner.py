"""Runs one tool function on the current tab and builds its result."""

from __future__ import annotations

import asyncio
import time

from ..tool_result import ToolCallResult, ToolError
from .browser_thread import ChromiumGoneBeforeCall
from .call_report import PAGE_BUSY, describe_events_since, read_page_state, report_page_changes
from .playwright_errors import CHROMIUM_ENDED, explain_playwright_error
from .tool_factory import BrowserCall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping
    from typing import Any

    from ..tool_context import ToolContext
    from .browser_session import BrowserSession
    from .call_report import PageStateBeforeCall

UNRESPONSIVE_TIMEOUT = 1.0
"""Seconds a tool gets on a page that is already unresponsive."""
SILENT_SECONDS = 2.0
"""Seconds without an answer after which a page counts as busy with a script."""
SPARE_SECONDS = 0.5
"""Seconds beyond its timeout in which a function may report the timeout itself."""


async def run_browser_call(
    context: ToolContext,
    session: BrowserSession,
    function: Callable[..., Awaitable[str | ToolCallResult]],
    arguments: Mapping[str, Any],
    seconds: float,
    dismiss_reason: str,
    leaves_page: bool,
    acts: bool,
) -> ToolCallResult:
    """Run `function` on the current tab; `dismiss_reason` dismisses open dialogs first, with this reason."""
    dialogs = session.dialogs
    dialogs.start_call()
    started = session.start_call()
    dialogs.muted += leaves_page
    try:
        if dismiss_reason and dialogs.pending:
            if leaves_page:
                # The page is being left, so end its script and further dialogs.
                session.interrupt_soon(await session.current_tab())
            await dialogs.dismiss_pending(dismiss_reason)
        started_at = time.monotonic()
        earlier = await read_page_state(session)
        earlier.number = started
        # The time spent waiting for a slow page counts.
        if not (earlier.answered or dialogs.pending):
            loading = earlier.tab.navigation_request is not None or leaves_page
            seconds = (
                max(1.0, seconds - (time.monotonic() - started_at)) if loading else min(seconds, UNRESPONSIVE_TIMEOUT)
            )
        return await _run(context, session, function, arguments, seconds, earlier, acts, leaves_page)
    finally:
        dialogs.muted -= leaves_page


async def _run(
    context: ToolContext,
    session: BrowserSession,
    function: Callable[..., Awaitable[str | ToolCallResult]],
    arguments: Mapping[str, Any],
    seconds: float,
    earlier: PageStateBeforeCall,
    acts: bool,
    leaving: bool,
) -> ToolCallResult:
    if not session.is_alive:
        raise ChromiumGoneBeforeCall(CHROMIUM_ENDED)
    try:
        if leaving and not (earlier.answered or session.dialogs.pending):
            await session.free_tab(earlier.tab)
            earlier.tab = await session.current_tab()
        call = BrowserCall(context, session, earlier.tab, seconds)
        action = _await_result(function(call, **arguments))
        if acts and not (leaving or session.dialogs.pending):
            action = _fail_if_page_hangs(session, call, action)
        done = await session.run_action(action, seconds + SPARE_SECONDS)
        if acts:
            await session.wait_for_effects(call.tab, seconds, earlier.number)
    except ToolError as error:
        return await _error_result(session, earlier, error)
    except Exception as error:
        tool_error = explain_playwright_error(error, session)
        if not session.is_alive:
            raise tool_error from None
        late = isinstance(error, asyncio.TimeoutError) or "Timeout" in str(error)
        return await _error_result(
            session, earlier, ToolError(PAGE_BUSY) if late and not earlier.answered else tool_error
        )
    if acts or done is None:
        return await _with_report(session, earlier, done)
    result = done if isinstance(done, ToolCallResult) else ToolCallResult(done)
    events, files = describe_events_since(session, earlier)
    result.text = "\n".join([result.text, *events])
    result.files += files
    return result


async def _with_report(
    session: BrowserSession, earlier: PageStateBeforeCall, done: str | ToolCallResult | None
) -> ToolCallResult:
    if not isinstance(done, ToolCallResult):
        return await report_page_changes(session, earlier, done or "")
    reported = await report_page_changes(session, earlier, done.text)
    done.text, done.files = reported.text, [*done.files, *reported.files]
    done.structured = {**(reported.structured or {}), **(done.structured or {})}
    return done


async def _await_result(work: Awaitable[str | ToolCallResult]) -> str | ToolCallResult:
    return await work


async def _fail_if_page_hangs(
    session: BrowserSession, call: BrowserCall, action: Coroutine[Any, Any, str | ToolCallResult]
) -> str | ToolCallResult:
    """Await an action; raise ToolError if it made the page busy with a script that may never end."""
    task = asyncio.ensure_future(action)
    try:
        while not (await asyncio.wait({task}, timeout=1.0))[0]:
            tab = call.tab
            silent = not await session.read_title_and_focus(tab, SILENT_SECONDS)
            is_expected = tab.navigation_request is not None or tab.page.is_closed() or session.dialogs.pending
            if silent and not is_expected and not task.done():
                raise ToolError(f"this was probably done, but now {PAGE_BUSY}")
        return task.result()
    finally:
        task.cancel()


async def _error_result(session: BrowserSession, earlier: PageStateBeforeCall, error: ToolError) -> ToolCallResult:
    """Return an error result that includes what happened nevertheless."""
    if not earlier.answered or PAGE_BUSY in str(error):
        return ToolCallResult("\n".join([str(error), *describe_events_since(session, earlier)[0]]), error=True)
    try:
        result = await asyncio.wait_for(report_page_changes(session, earlier, str(error)), 3.0)
    except Exception:
        return ToolCallResult(str(error), error=True)
    if session.events.last_number == earlier.number and not any((result.structured or {}).get("changed", {}).values()):
        result.text = str(error)
    result.error = True
    return result
