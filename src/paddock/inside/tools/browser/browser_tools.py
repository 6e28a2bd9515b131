"""All tools of a browser sandbox."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..tool_context import ToolContext
    from ..tool_registry import CallableTool

WORKSPACE = "/workspace"


def browser_tools(context: ToolContext) -> list[CallableTool]:
    """Return the browser tools, and connect to the browser ahead of the first call."""
    from .browser_agent_tools import browser_agent_tools
    from .browser_state_tools import browser_state_tools
    from .browser_thread import BrowserThread
    from .navigation_tools import navigation_tools
    from .page_action_tools import page_action_tools
    from .page_reading_tools import page_reading_tools
    from .tool_factory import BrowserToolFactory

    browser = BrowserThread(downloads_directory(context))
    browser.connect_ahead()
    factory = BrowserToolFactory(browser)
    page_tools = [
        *navigation_tools(factory),
        *page_action_tools(factory),
        *page_reading_tools(factory),
        *browser_state_tools(factory),
    ]
    return [*page_tools, *browser_agent_tools(page_tools)]


def downloads_directory(context: ToolContext) -> str:
    base = WORKSPACE if os.access(WORKSPACE, os.W_OK) else context.cwd
    return os.path.join(base, "downloads")
