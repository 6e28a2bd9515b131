"""The tools of a box that is a browser."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..context import Context
    from ..registry import Tool

WORKSPACE = "/workspace"


def tools(context: Context) -> list[Tool]:
    """Offer the browser, and begin to look for it: whoever lists its tools will soon call one."""
    from . import actions, agent, logs, navigation, reading
    from .engine import Engine
    from .kit import Kit

    engine = Engine(downloads_directory(context))
    engine.warm()
    kit = Kit(engine)
    offered = [tool for module in (navigation, actions, reading, logs) for tool in module.tools(kit)]
    return [*offered, *agent.tools(offered)]


def downloads_directory(context: Context) -> str:
    base = WORKSPACE if os.access(WORKSPACE, os.W_OK) else context.cwd
    return os.path.join(base, "downloads")
