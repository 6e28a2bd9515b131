"""Starts the daemon, and reaps like an init does until it is told to end."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .box import Box

USAGE = "usage: python3 -I -S inside.pyz (--config-fd N | --config FILE) [--early PID]"
THREAD_STACK = 512 * 1024
SWITCH = 0.001
"""Seconds after which a thread that is busy, such as with an import, lets another one answer."""

_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36


def main(arguments: Sequence[str]) -> int:
    if list(arguments) == ["--kernel"]:
        from .kernel import serve

        return serve()
    if len(arguments) == 2 and arguments[0] == "--tools":
        from .tools.main import serve as serve_tools

        return serve_tools(int(arguments[1]))
    early = int(arguments[3]) if len(arguments) == 4 and arguments[2] == "--early" else None
    if len(arguments) != (2 if early is None else 4) or arguments[0] not in ("--config-fd", "--config"):
        print(USAGE, file=sys.stderr)
        return 2
    from .settings import SettingsError, read_settings

    hide_from_the_box()
    try:
        source = int(arguments[1]) if arguments[0] == "--config-fd" else os.open(arguments[1], os.O_RDONLY)
        settings = read_settings(source)
    except (SettingsError, OSError, ValueError) as error:
        print(f"inside: {error}", file=sys.stderr)
        return 2

    from .box import Box

    set_limits(settings.rlimits, early)
    threading.stack_size(THREAD_STACK)
    sys.setswitchinterval(SWITCH)
    box = Box(settings, early)
    init = Init(box)
    if settings.services:
        box.services.begin()  # They load what they need while we do.
    from .bridges import open_bridge, open_kernel_port
    from .server import Server, open_listener

    server = Server(box, open_listener(settings.listen))

    for bridge in settings.bridges:
        open_bridge(bridge)
    open_kernel_port()
    if settings.entrypoint is not None:
        box.start_entrypoint(settings.entrypoint)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    gc.freeze()
    gc.enable()
    return init.run()


def hide_from_the_box() -> None:
    """Keep other processes of the same user out of our memory and descriptors, and adopt orphans."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    if os.getpid() != 1:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for name in os.listdir("/proc/self/fd"):
        try:
            if int(name) > 2:
                os.set_inheritable(int(name), False)
        except OSError:
            pass


def set_limits(limits: dict[str, int], early: int | None) -> None:
    """Bound what the box may use where the host has no control groups; processes inherit it, but for an early one."""
    if not limits:
        return
    import resource

    for name, value in limits.items():
        kind: int = getattr(resource, f"RLIMIT_{name}")
        ceiling = resource.getrlimit(kind)[1]
        bound = value if ceiling == resource.RLIM_INFINITY else min(value, ceiling)
        resource.setrlimit(kind, (bound, bound))
        if early is not None:
            try:
                resource.prlimit(early, kind, (bound, bound))
            except ProcessLookupError:
                pass


class Init:
    """The main thread: woken by signals, it reaps children and ends the box when asked to."""

    def __init__(self, box: Box) -> None:
        self._box = box
        self._wakeups, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        self._ended = threading.Event()

    def run(self) -> int:
        ending: threading.Thread | None = None
        while not self._ended.is_set():
            numbers = os.read(self._wakeups, 256)
            self._box.processes.reap()
            if ending is None and not {signal.SIGTERM, signal.SIGINT}.isdisjoint(numbers):
                ending = threading.Thread(target=self._shut_down, daemon=True)
                ending.start()
        sys.stdout.flush()
        os._exit(0)

    def _shut_down(self) -> None:
        self._box.close()
        self._box.processes.shut_down()
        self._ended.set()
        os.kill(os.getpid(), signal.SIGCHLD)
