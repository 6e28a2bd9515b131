"""Starts the tool worker: one process beside the daemon, with what the image's Python brings."""

from __future__ import annotations

import os
import select
import socket
import threading

THREAD_STACK = 1024 * 1024


def serve(listening_fd: int) -> int:
    """Serve this box's tools on a listening Unix socket until the process is ended."""
    from .context import Context
    from .registry import Registry
    from .server import Server

    threading.stack_size(THREAD_STACK)
    threading.Thread(target=_end_with_the_daemon, daemon=True).start()
    listener = socket.socket(fileno=listening_fd)
    listener.set_inheritable(False)
    kind = os.environ.get("PADDOCK_KIND") or "code"
    context = Context(kind=kind)
    if os.environ.get("DISPLAY"):
        threading.Thread(target=context.warm, daemon=True).start()
    registry = Registry(context, kind)
    # Whoever is offered a browser will soon call for it, and its driver takes half a second to come up.
    threading.Thread(target=registry.load, daemon=True).start()
    Server(context, registry, listener).serve_forever()
    return 0


def _end_with_the_daemon() -> None:
    """End when nobody reads our output any more: the daemon does for as long as it lives."""
    poller = select.poll()
    poller.register(1, 0)
    if any(events & select.POLLERR for _, events in poller.poll()):
        os._exit(0)
