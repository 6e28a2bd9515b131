"""Terminals: shells that keep running while clients connect and disconnect."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import select
import signal
import struct
import termios
import threading

from ..errors import ApiError, invalid_body_error
from ..file_descriptors import READ_SIZE, OutputPipes, close_descriptors, readable_byte_count
from .commands import find_shell
from .environment import ProcessEnvironment
from .processes import ChildProcess, ProcessRegistry
from .scrollback import STDERR, STDOUT, TerminalScrollback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

MAX_TERMINALS = 64
TAKEN_OVER, DELETED = (4001, "TAKEN_OVER"), (4002, "DELETED")
"""WebSocket close codes and reasons for evicted clients."""
MAX_LAG = 512 * 1024
STALLED_CLIENT_SECONDS = 30.0
LEAVING_CLIENT_SECONDS = 0.5
INPUT_RETRY_SECONDS = 0.02
"""Seconds between two attempts to write to a program that does not read."""
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")

# A session leader without a terminal that opens one makes it its controlling terminal.
_ADOPT_TERMINAL = 'exec 0<>"$1" 1>&0 2>&0; shift; exec "$@"'


class ShellTerminal:
    """One shell on a pseudo-terminal or on plain pipes; started by its first client."""

    def __init__(
        self, identifier: str, processes: ProcessRegistry, environment: ProcessEnvironment, cwd: str, words: list[str]
    ):
        self.id = identifier
        self.marker = os.urandom(16).hex()
        self.output = TerminalScrollback()
        self.lock = threading.RLock()
        self.child: ChildProcess | None = None
        self.is_pty = True
        self.launch_failed = False
        self.columns, self.rows = 80, 24
        self._processes = processes
        self._environment = environment
        self._cwd = cwd
        self._words = words
        self._input = -1
        self._input_lock = threading.Lock()
        """Held while the descriptor is used, so that its number cannot be reused for another file."""
        self._sent_offset = -1
        self._evict_client: Callable[[int, str], None] | None = None
        self._client_released = threading.Condition()

    @property
    def running(self) -> bool:
        return self.child is not None and self.child.exit_code is None

    def start(self, pty: bool, size: tuple[int, int] | None = None) -> bool:
        """Start the shell with a size in columns and rows; False if it was started already."""
        with self.lock:
            if self.child is not None:
                return False
            self.is_pty = pty
            if size is not None:
                self.columns, self.rows = (min(max(1, side), 0xFFFF) for side in size)
            try:
                self._start_pty() if pty else self._start_pipes()
            except OSError:
                self.launch_failed = True
                raise
            return True

    def write(self, data: bytes, cancelled: threading.Event) -> None:
        """Write `data` to the program, waiting for one that does not read until `cancelled` is set."""
        view = memoryview(data)
        while view and not cancelled.is_set():
            with self._input_lock:
                if self._input < 0:
                    raise OSError(errno.EIO, "the program has ended")
                try:
                    view = view[os.write(self._input, view) :]
                    continue
                except BlockingIOError:
                    pass
            cancelled.wait(INPUT_RETRY_SECONDS)

    def resize(self, columns: int, rows: int) -> None:
        with self._input_lock:
            if self.is_pty and self._input >= 0:
                self.columns, self.rows = min(columns, 0xFFFF), min(rows, 0xFFFF)
                fcntl.ioctl(self._input, termios.TIOCSWINSZ, struct.pack("HHHH", self.rows, self.columns, 0, 0))

    def signal(self, name: str) -> bool:
        """Send a signal to the foreground process group; False if the signal is unknown."""
        number = getattr(signal, name, None) if name.startswith("SIG") else None
        if not isinstance(number, signal.Signals) or self.child is None:
            return False
        with self._input_lock:
            group = os.tcgetpgrp(self._input) if self.is_pty and self._input >= 0 else 0
        if group > 0 and group != self.child.pid:
            os.killpg(group, number)
        else:
            self.child.signal(number)
        return True

    def attach_client(self, evict: Callable[[int, str], None], takeover: bool, timeout: float = 5.0) -> bool:
        """Become the only client; with `takeover`, the current client is evicted first."""
        with self._client_released:
            current = self._evict_client
            if current is not None and takeover:
                self._processes.threads.run(lambda: current(*TAKEN_OVER))
            wait_seconds = timeout if takeover else LEAVING_CLIENT_SECONDS
            if not self._client_released.wait_for(lambda: self._evict_client is None, wait_seconds):
                return False
            self._evict_client = evict
            return True

    def detach_client(self) -> None:
        with self._client_released:
            self._evict_client = None
            self._client_released.notify_all()
        self.report_progress(-1)

    def report_progress(self, offset: int) -> None:
        """Record the offset sent to the client, for back-pressure on the output."""
        with self.output.changed:
            self._sent_offset = offset
            self.output.changed.notify_all()

    def close(self) -> None:
        if self.child is not None:
            self.child.signal(signal.SIGHUP)
            self._processes.terminate(self.child)
        holder = self._evict_client
        if holder is not None:
            holder(*DELETED)

    def _start_pty(self) -> None:
        master, slave = os.openpty()
        try:
            os.set_blocking(master, False)
            self._input = master
            fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", self.rows, self.columns, 0, 0))
            variables = self._environment.variables({})
            variables.setdefault("TERM", "xterm-256color")
            words = ["/bin/sh", "-c", _ADOPT_TERMINAL, "sh", os.ttyname(slave), *self._words]
            self.child = self._processes.spawn(words, cwd=self._cwd, env=variables, marker=self.marker)
        except BaseException:
            close_descriptors((master, slave))
            raise
        # Held open until the end: a terminal that no process has open reads as hung up.
        self._start_collector({master: STDOUT}, slave)

    def _start_pipes(self) -> None:
        pipes = OutputPipes()
        stdin, self._input = os.pipe()
        os.set_blocking(self._input, False)
        try:
            self.child = self._processes.spawn(
                self._words,
                cwd=self._cwd,
                env=self._environment.variables({}),
                marker=self.marker,
                stdin=stdin,
                stdout=pipes.stdout_writer,
                stderr=pipes.stderr_writer,
            )
        finally:
            pipes.close_writers()
            os.close(stdin)
        self._start_collector({pipes.stdout: STDOUT, pipes.stderr: STDERR})

    def _start_collector(self, sources: dict[int, int], *held: int) -> None:
        self._processes.threads.run(lambda: self._collect_output(sources, held))

    def _collect_output(self, sources: dict[int, int], held: tuple[int, ...]) -> None:
        assert self.child is not None
        poller = select.poll()
        for descriptor in (*sources, self.child.exited_fd):
            poller.register(descriptor, select.POLLIN)
        exited = False
        left = set(sources)
        while left and not (exited and not poller.poll(0)):
            for descriptor, _ in poller.poll():
                if descriptor == self.child.exited_fd:
                    exited = True
                    poller.unregister(descriptor)
                elif data := _read_available(descriptor):
                    self.output.append(sources[descriptor], data)
                    self._wait_for_client()
                elif data is not None:
                    poller.unregister(descriptor)
                    left.discard(descriptor)
        self.child.wait()
        self.child.close()
        self.output.finish()
        with self._input_lock:
            descriptor, self._input = self._input, -1
            close_descriptors({*sources, *held, descriptor})

    def _wait_for_client(self) -> None:
        with self.output.changed:
            self.output.changed.wait_for(
                lambda: self._sent_offset < 0 or self.output.end - self._sent_offset < MAX_LAG,
                timeout=STALLED_CLIENT_SECONDS,
            )


class ShellTerminals:
    def __init__(self, processes: ProcessRegistry, environment: ProcessEnvironment, shell: str) -> None:
        self._processes = processes
        self._environment = environment
        self._shell = shell
        self._lock = threading.Lock()
        self._all: dict[str, ShellTerminal] = {}

    def create(self, cwd: str, command: str, name: str | None = None) -> ShellTerminal:
        """Create a terminal, or return the existing one of that name."""
        if name is not None and not _NAME.fullmatch(name):
            raise invalid_body_error("'id' must be of lower-case letters, digits and dashes, 63 at most")
        with self._lock:
            existing = self._all.get(name) if name is not None else None
        if existing is not None:
            return existing
        directory = self._environment.working_directory(cwd, self._environment.variables({}))
        shell = self._shell if self._shell and os.access(self._shell, os.X_OK) else find_shell()
        words = [find_shell(), "-c", command] if command else [shell]
        identifier = name or os.urandom(16).hex()
        terminal = ShellTerminal(identifier, self._processes, self._environment, directory, words)
        with self._lock:
            if identifier in self._all:
                return self._all[identifier]
            if len(self._all) >= MAX_TERMINALS:
                raise ApiError(400, "RUNTIME_ERROR", f"a sandbox keeps at most {MAX_TERMINALS} terminals; delete some")
            self._all[terminal.id] = terminal
        return terminal

    def list_terminals(self) -> list[ShellTerminal]:
        with self._lock:
            return list(self._all.values())

    def get(self, identifier: str) -> ShellTerminal:
        with self._lock:
            terminal = self._all.get(identifier)
        if terminal is None:
            raise ApiError(404, "CONTEXT_NOT_FOUND", f"no terminal {identifier!r}")
        return terminal

    def delete(self, identifier: str) -> None:
        terminal = self.get(identifier)
        with self._lock:
            self._all.pop(identifier, None)
        terminal.close()


def _read_available(descriptor: int) -> bytes | None:
    """Read the available bytes; empty at the end, None if there are none yet.

    A terminal returns 4 KiB per read; several reads are joined, because forwarding each is slow.
    """
    parts, size = [], 0
    try:
        while data := os.read(descriptor, READ_SIZE):
            parts.append(data)
            size += len(data)
            if size >= READ_SIZE or readable_byte_count(descriptor) == 0:
                break
    except BlockingIOError:
        return b"".join(parts) or None
    except OSError:
        pass  # EIO: the last process closed the terminal.
    return parts[0] if len(parts) == 1 else b"".join(parts)
