"""Entry point: starts the daemon, then reaps processes as an init does until it is signalled to stop."""

from __future__ import annotations

import gc
import os
import select
import signal
import sys
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .daemon import Daemon
    from .network.listeners import NetworkListeners

USAGE = "usage: python3 -I -S inside.pyz (--config-fd N | --config FILE) [--early PID]"
THREAD_STACK = 512 * 1024
THREAD_SWITCH_SECONDS = 0.001
"""Seconds a busy thread, such as one that imports, may run before another thread gets a turn."""
THREAD_RETRY_SECONDS = 0.05
"""Seconds to wait while the sandbox is at its limit of processes."""

_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36


def main(arguments: Sequence[str]) -> int:
    if list(arguments) == ["--kernel"]:
        from .exec.python_kernel import serve_python_kernel

        return serve_python_kernel()
    if len(arguments) == 2 and arguments[0] == "--tools":
        from .tools.worker_main import serve_tools as serve_tools

        return serve_tools(int(arguments[1]))
    early = int(arguments[3]) if len(arguments) == 4 and arguments[2] == "--early" else None
    if len(arguments) != (2 if early is None else 4) or arguments[0] not in ("--config-fd", "--config"):
        print(USAGE, file=sys.stderr)
        return 2
    from .settings import DaemonSettingsError, read_daemon_settings

    protect_daemon_process()
    try:
        source = int(arguments[1]) if arguments[0] == "--config-fd" else os.open(arguments[1], os.O_RDONLY)
        settings = read_daemon_settings(source)
    except (DaemonSettingsError, OSError, ValueError) as error:
        print(f"inside: {error}", file=sys.stderr)
        return 2

    from .daemon import Daemon

    apply_resource_limits(settings.rlimits, early)
    threading.stack_size(THREAD_STACK)
    sys.setswitchinterval(THREAD_SWITCH_SECONDS)
    daemon = Daemon(settings, early)
    init = InitProcess(daemon)
    if settings.network is not None:
        from .network.listeners import NetworkListeners

        init.start_network_when_used(NetworkListeners(settings.network))
    if settings.services:
        daemon.services.start_supervising()  # Services load while the daemon imports the rest.
    from .server import DaemonServer, open_listening_socket
    from .services.uplink_ports import open_uplink_port, reserve_jupyter_port

    server = DaemonServer(daemon, open_listening_socket(settings.listen))

    for uplink_port in settings.uplink_ports:
        open_uplink_port(uplink_port)
    reserve_jupyter_port()
    if settings.entrypoint is not None:
        daemon.start_entrypoint(settings.entrypoint)
    daemon.threads.run(server.serve_forever)
    gc.freeze()
    gc.enable()
    return init.run()


def protect_daemon_process() -> None:
    """Deny other processes of the user access to the daemon's memory and descriptors, and adopt orphans."""
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


def apply_resource_limits(limits: dict[str, int], early: int | None) -> None:
    """Set rlimits where the host has no control groups; children inherit them, the `early` process is set too."""
    if not limits:
        return
    import resource

    for name, value in limits.items():
        kind: int = getattr(resource, f"RLIMIT_{name}")
        hard_limit = resource.getrlimit(kind)[1]
        soft_limit = value if hard_limit == resource.RLIM_INFINITY else min(value, hard_limit)
        resource.setrlimit(kind, (soft_limit, soft_limit))
        if early is not None:
            try:
                resource.prlimit(early, kind, (soft_limit, soft_limit))
            except ProcessLookupError:
                pass


class InitProcess:
    """The main loop: woken by signals, it reaps children and shuts the sandbox down on SIGTERM or SIGINT."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._wakeups, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        self._poll = select.poll()
        self._poll.register(self._wakeups, select.POLLIN)
        self._unused_network: NetworkListeners | None = None
        self._ended = threading.Event()

    def start_network_when_used(self, listeners: NetworkListeners) -> None:
        """Start the network's thread when the first connection or query arrives."""
        self._unused_network = listeners
        for descriptor in listeners.descriptors:
            self._poll.register(descriptor, select.POLLIN)

    def run(self) -> int:
        is_ending = False
        while not self._ended.is_set():
            ready = {descriptor for descriptor, _ in self._poll.poll()}
            if ready != {self._wakeups}:
                self._start_network()
            if self._wakeups not in ready:
                continue
            numbers = os.read(self._wakeups, 256)
            self._daemon.processes.reap()
            if not is_ending and not {signal.SIGTERM, signal.SIGINT}.isdisjoint(numbers):
                is_ending = True
                self._daemon.threads.run(self._shut_down)
        sys.stdout.flush()
        os._exit(0)

    def _start_network(self) -> None:
        network = self._unused_network
        if network is None or not network.start_thread():
            threading.Event().wait(THREAD_RETRY_SECONDS)
            return
        for descriptor in network.descriptors:
            self._poll.unregister(descriptor)
        self._unused_network = None

    def _shut_down(self) -> None:
        self._daemon.close()
        self._daemon.processes.shut_down()
        self._ended.set()
        os.kill(os.getpid(), signal.SIGCHLD)
