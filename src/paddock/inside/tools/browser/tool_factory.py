"""Makes tools of functions that work on a page."""

from __future__ import annotations

from ..tool_registry import CallableTool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from typing import Any

    from ..tool_context import ToolContext
    from ..tool_result import ToolCallResult
    from .browser_session import BrowserSession, BrowserTab
    from .browser_thread import BrowserThread

MAX_SECONDS = 120


class BrowserCall:
    """A running call: its session, tab and timeout."""

    def __init__(self, context: ToolContext, session: BrowserSession, tab: BrowserTab, seconds: float) -> None:
        self.context = context
        self.session = session
        self.tab = tab
        self.page: Any = tab.page
        self.seconds = seconds

    @property
    def milliseconds(self) -> float:
        return self.seconds * 1000


class BrowserToolFactory:
    """Makes tools for one browser."""

    def __init__(self, browser: BrowserThread) -> None:
        self.browser = browser

    def make_tool(
        self,
        name: str,
        description: str,
        properties: Mapping[str, Mapping[str, Any]],
        function: Callable[..., Awaitable[str | ToolCallResult]],
        *,
        required: Sequence[str] = (),
        seconds: float = 5,
        acts: bool = False,
        read_only: bool = False,
        answers_dialogs: bool = False,
        leaves_page: bool = False,
    ) -> CallableTool:
        """Return a tool that reports in its result what has changed.

        `function(call, **arguments)` returns a description of what it did, or a complete result. An open dialog is
        dismissed before the function runs, unless it `answers_dialogs`; while a function with `leaves_page` runs, new
        dialogs are dismissed. A function with `acts` changes the page, and waits while a person has control.
        """
        limit = {"type": "number", "minimum": 0.1, "maximum": MAX_SECONDS, "default": seconds}
        limit["description"] = "timeout in seconds"

        def call(context: ToolContext, *, timeout: float, **arguments: Any) -> ToolCallResult:
            async def work(session: BrowserSession) -> ToolCallResult:
                from .call_runner import run_browser_call

                dismiss_reason = "" if answers_dialogs else f"{name} was called before it was answered"
                return await run_browser_call(
                    context, session, function, arguments, timeout, dismiss_reason, leaves_page, acts
                )

            return self.browser.run_in_thread(work, timeout, context.caller)

        arguments = {**properties, "timeout": limit}
        return CallableTool(
            name, description, arguments, required, call, input=acts, changes_screen=acts, read_only=read_only
        )
