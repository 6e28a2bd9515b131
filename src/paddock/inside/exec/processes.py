"""Starts, reaps and terminates the daemon's child processes."""

from __future__ import annotations

import os
import signal
import threading
import time

from ..errors import ApiError
from ..http.worker_threads import WorkerThreads
from .disk_limit import DiskLimitGuard

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from .user_identity import UserIdentity

KILL_GRACE_SECONDS = 2.0
TIMED_OUT, CANNOT_EXECUTE, NOT_FOUND = 124, 126, 127
"""Exit codes of commands that timed out or could not be started, as in shells."""
MARKER_VARIABLE = "PADDOCK_COMMAND_ID"
EXEC_RETRIES = 5
"""Attempts to read the environment of a process in the middle of `execve`, where it is empty."""
EXEC_PAUSE = 0.002
COMMAND_OOM_SCORE = "500"
"""Raises the chance that a command is ended when memory runs out, although the daemon may use less."""


class ChildProcess:
    """A child process, leader of its own session; `exited_fd` becomes readable when it ends."""

    def __init__(self, pid: int, marker: str, collect: Callable[[ChildProcess], None]) -> None:
        self.pid = pid
        self.marker = marker
        self.exit_code: int | None = None
        self.exited_fd = os.pidfd_open(pid)
        self._reap_child = collect
        self._exited = threading.Event()

    def wait(self, timeout: float | None = None) -> int | None:
        """Return the exit code (128 + N when signal N ended it), or None when it still runs."""
        if self.exit_code is None:
            self._reap_child(self)  # Reap it here if it has ended, instead of waiting for the main thread.
            self._exited.wait(timeout)
        return self.exit_code

    def signal(self, number: int) -> None:
        """Send a signal to the process group."""
        if self.exit_code is None:
            _kill(-self.pid, number)

    def close(self) -> None:
        """Close `exited_fd` once it is no longer polled."""
        descriptor, self.exited_fd = self.exited_fd, -1
        if descriptor >= 0:
            os.close(descriptor)

    def mark_exited(self, status: int) -> None:
        self.exit_code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        self._exited.set()


class ProcessRegistry:
    """All children of the daemon, as opposed to the orphans that pid 1 inherits."""

    def __init__(self, disk_limit: DiskLimitGuard, threads: WorkerThreads) -> None:
        self.disk_limit = disk_limit
        self.threads = threads
        self._lock = threading.Lock()
        self._children: dict[int, ChildProcess] = {}

    def spawn(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        marker: str,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        pass_fds: Sequence[int] = (),
        identity: UserIdentity | None = None,
    ) -> ChildProcess:
        """Start `argv` in a new session; streams that are not given are /dev/null.

        Without an identity, it runs as the daemon's user. Raises OSError if it cannot be executed.
        """
        import subprocess  # Not imported at start, to save memory in unused sandboxes.

        stdin, stdout, stderr = (subprocess.DEVNULL if each is None else each for each in (stdin, stdout, stderr))
        with self._lock:
            try:
                process = subprocess.Popen(
                    self.disk_limit.wrap(argv),
                    cwd=cwd,
                    env={**env, MARKER_VARIABLE: marker},
                    stdin=stdin,
                    stdout=stdout,
                    stderr=stderr,
                    pass_fds=pass_fds,
                    start_new_session=True,
                    user=identity.uid if identity else None,
                    group=identity.gid if identity else None,
                    extra_groups=identity.groups if identity else None,
                )
            except subprocess.SubprocessError as error:
                raise ApiError(500, "RUNTIME_ERROR", f"cannot start {argv[0]!r}: {error}") from None
            _raise_oom_score(process.pid)
            child = ChildProcess(process.pid, marker, self._reap_child)
            self._children[process.pid] = child
            process.returncode = 0  # Popen must never wait: reap() does.
        return child

    def adopt(self, pid: int, marker: str) -> ChildProcess:
        """Register a child that was started before the daemon and leads its own session."""
        with self._lock:
            child = self._children[pid] = ChildProcess(pid, marker, self._reap_child)
        return child

    def reap(self) -> None:
        """Reap every process that has ended, including orphans."""
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None:
                return
            with self._lock:
                try:
                    pid, status = os.waitpid(found.si_pid, os.WNOHANG)
                except ChildProcessError:
                    continue
                child = self._children.pop(pid, None)
            if child is not None:
                child.mark_exited(status)

    def _reap_child(self, child: ChildProcess) -> None:
        with self._lock:
            if self._children.get(child.pid) is not child:
                return
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if not pid:
                return
            del self._children[pid]
        child.mark_exited(status)

    def running(self) -> list[ChildProcess]:
        with self._lock:
            return list(self._children.values())

    def terminate(self, child: ChildProcess, grace: float = KILL_GRACE_SECONDS) -> None:
        """Send SIGTERM to the child and all its descendants, and SIGKILL after `grace`. Returns at once."""
        process_family = find_process_family([child])
        _kill_all(child, process_family, signal.SIGTERM)
        self.threads.run(lambda: self._kill_after_grace(child, process_family, grace))

    def shut_down(self, grace: float = KILL_GRACE_SECONDS) -> None:
        """Terminate every process in the sandbox and wait for them to end."""
        children = self.running()
        process_family = find_process_family(children)
        for number in (signal.SIGTERM, signal.SIGCONT):
            for pid in process_family:
                _kill(pid, number)
        deadline = time.monotonic() + grace
        for child in children:
            child.wait(max(0.0, deadline - time.monotonic()))
        for pid in find_process_family(self.running(), process_family):
            _kill(pid, signal.SIGKILL)
        for child in children:
            child.wait(1.0)

    def _kill_after_grace(self, child: ChildProcess, process_family: set[int], grace: float) -> None:
        child.wait(grace)
        with self._lock:
            if child.exit_code is not None and child.pid in self._children:
                return  # The pid already belongs to a newer child.
        _kill_all(child, find_process_family([child], process_family), signal.SIGKILL)


def _raise_oom_score(pid: int) -> None:
    """Have the kernel end a command before the daemon when memory runs out."""
    try:
        with open(f"/proc/{pid}/oom_score_adj", "w") as file:
            file.write(COMMAND_OOM_SCORE)
    except OSError:
        pass  # The command has ended, or runs as another user.


def find_process_family(children: Iterable[ChildProcess], known: Iterable[int] = ()) -> set[int]:
    """Return the pids of all living processes that `children` started, even outside their sessions.

    A process belongs to the family if its session or group is a child's, if its parent belongs, or if it
    still has the child's marker in its environment.
    """
    leaders = {child.pid for child in children}
    markers = {f"{MARKER_VARIABLE}={child.marker}".encode() for child in children}
    parents: dict[int, int] = {}
    process_family: set[int] = set()
    unknown: set[int] = set()
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        fields = _read_file(f"/proc/{entry}/stat").rpartition(b") ")[2].split()
        if len(fields) < 4 or fields[0] in (b"Z", b"X"):
            continue
        pid, parents[int(entry)] = int(entry), int(fields[1])
        related = pid in known or bool(leaders & {pid, int(fields[2]), int(fields[3])})
        environment = b"" if related else _read_file(f"/proc/{entry}/environ")
        if related or not markers.isdisjoint(environment.split(b"\0")):
            process_family.add(pid)
        elif not environment:
            unknown.add(pid)
    for _ in range(EXEC_RETRIES):
        if not unknown:
            break
        time.sleep(EXEC_PAUSE)
        environments = {pid: _read_file(f"/proc/{pid}/environ") for pid in unknown}
        process_family |= {pid for pid, text in environments.items() if not markers.isdisjoint(text.split(b"\0"))}
        unknown = {pid for pid, text in environments.items() if not text}
    has_grown = True
    while has_grown:
        new_children = {
            pid for pid, parent in parents.items() if parent in process_family and pid not in process_family
        }
        process_family |= new_children
        has_grown = bool(new_children)
    return process_family


def _kill_all(child: ChildProcess, process_family: Iterable[int], number: int) -> None:
    child.signal(number)
    for pid in process_family:
        if pid != child.pid:
            _kill(pid, number)
    child.signal(signal.SIGCONT)


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def _read_file(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as stream:
            return stream.readall()
    except OSError:
        return b""
