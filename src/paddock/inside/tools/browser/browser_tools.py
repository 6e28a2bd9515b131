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
    from .action_tools import action_tools
    from .agent_tools import agent_tools
    from .browser_thread import BrowserThread
    from .log_tools import log_tools
    from .navigation_tools import navigation_tools
    from .reading_tools import reading_tools
    from .tool_factory import BrowserToolFactory

    browser = BrowserThread(downloads_directory(context))
    browser.connect_ahead()
    factory = BrowserToolFactory(browser)
    page_tools = [
        *navigation_tools(factory),
        *action_tools(factory),
        *reading_tools(factory),
        *log_tools(factory),
    ]
    return [*page_tools, *agent_tools(page_tools)]


def downloads_directory(context: ToolContext) -> str:
    base = WORKSPACE if os.access(WORKSPACE, os.W_OK) else context.cwd
    return os.path.join(base, "downloads")
