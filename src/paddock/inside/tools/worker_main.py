"""Entry point of the tool worker: a process beside the daemon, with the image's Python packages."""

from __future__ import annotations

import os
import select
import socket
import threading

THREAD_STACK = 1024 * 1024


def serve_tools(listening_fd: int) -> int:
    """Serve this sandbox's tools on a listening Unix socket until the process is terminated."""
    from .tool_context import ToolContext
    from .tool_registry import ToolRegistry
    from .tool_server import ToolServer

    threading.stack_size(THREAD_STACK)
    threading.Thread(target=_exit_with_daemon, daemon=True).start()
    listener = socket.socket(fileno=listening_fd)
    listener.set_inheritable(False)
    kind = os.environ.get("PADDOCK_KIND") or "code"
    context = ToolContext(kind=kind)
    if os.environ.get("DISPLAY"):
        threading.Thread(target=context.take_first_screenshot, daemon=True).start()
    registry = ToolRegistry(context, kind)
    # Load the tools now: a browser's driver takes half a second to start.
    threading.Thread(target=registry.load_tools, daemon=True).start()
    ToolServer(context, registry, listener).serve_forever()
    return 0


def _exit_with_daemon() -> None:
    """Exit when the daemon ends, which reads this process's output for as long as it runs."""
    poller = select.poll()
    poller.register(1, 0)
    if any(events & select.POLLERR for _, events in poller.poll()):
        os._exit(0)
