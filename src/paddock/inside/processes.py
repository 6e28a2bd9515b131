"""Children of the daemon: started, reaped and ended in one place."""

from __future__ import annotations

import os
import signal
import threading
import time

from .disk_limit import DiskLimit
from .errors import ApiError, not_supported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

GRACE = 2.0
TIMED_OUT, CANNOT_EXECUTE, NOT_FOUND = 124, 126, 127
"""Exit codes of what did not end by itself, or never began."""
MARKER = "PADDOCK_COMMAND_ID"


class Child:
    """A process of ours, leader of its own session; `exited_fd` becomes readable when it ends."""

    def __init__(self, pid: int, marker: str, collect: Callable[[Child], None]) -> None:
        self.pid = pid
        self.marker = marker
        self.exit_code: int | None = None
        self.exited_fd = os.pidfd_open(pid)
        self._collect = collect
        self._exited = threading.Event()

    def wait(self, timeout: float | None = None) -> int | None:
        """Return the exit code (128 + N when signal N ended it), or None when it still runs."""
        if self.exit_code is None:
            self._collect(self)  # Whoever sees that it has ended need not wait for the main thread to see it too.
            self._exited.wait(timeout)
        return self.exit_code

    def signal(self, number: int) -> None:
        """Send a signal to the process group."""
        if self.exit_code is None:
            _kill(-self.pid, number)

    def close(self) -> None:
        """Let go of `exited_fd` once nobody watches it."""
        descriptor, self.exited_fd = self.exited_fd, -1
        if descriptor >= 0:
            os.close(descriptor)

    def mark_exited(self, status: int) -> None:
        self.exit_code = 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        self._exited.set()


class Processes:
    """The registry that tells our children from orphans that pid 1 inherits."""

    def __init__(self, disk_limit: DiskLimit) -> None:
        self.disk_limit = disk_limit
        self._lock = threading.Lock()
        self._children: dict[int, Child] = {}

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
        uid: int | None = None,
        gid: int | None = None,
    ) -> Child:
        """Start `argv` in a new session; a stream that is not given leads nowhere.

        Raises OSError when it cannot be executed, ApiError when the identity is not ours to take.
        """
        import subprocess  # A box that is not used yet does without.

        user, group, groups = _identity(uid, gid)
        stdin, stdout, stderr = (subprocess.DEVNULL if each is None else each for each in (stdin, stdout, stderr))
        with self._lock:
            try:
                process = subprocess.Popen(
                    self.disk_limit.wrap(argv),
                    cwd=cwd,
                    env={**env, MARKER: marker},
                    stdin=stdin,
                    stdout=stdout,
                    stderr=stderr,
                    pass_fds=pass_fds,
                    start_new_session=True,
                    user=user,
                    group=group,
                    extra_groups=groups,
                )
            except subprocess.SubprocessError as error:
                raise ApiError(500, "RUNTIME_ERROR", f"cannot start {argv[0]!r}: {error}") from None
            child = Child(process.pid, marker, self._collect)
            self._children[process.pid] = child
            process.returncode = 0  # Popen must never wait: reap() does.
        return child

    def adopt(self, pid: int, marker: str) -> Child:
        """Take a child that was started before us, a leader of its own session as well, for one of ours."""
        with self._lock:
            child = self._children[pid] = Child(pid, marker, self._collect)
        return child

    def reap(self) -> None:
        """Collect every process that has ended, ours or orphaned."""
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

    def _collect(self, child: Child) -> None:
        with self._lock:
            if self._children.get(child.pid) is not child:
                return
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if not pid:
                return
            del self._children[pid]
        child.mark_exited(status)

    def running(self) -> list[Child]:
        with self._lock:
            return list(self._children.values())

    def terminate(self, child: Child, grace: float = GRACE) -> None:
        """Ask the child and all it started to end, and see to it that they do. Returns at once."""
        family = relatives([child])
        _kill_all(child, family, signal.SIGTERM)
        threading.Thread(target=self._finish_off, args=(child, family, grace), daemon=True).start()

    def shut_down(self, grace: float = GRACE) -> None:
        """End every process in the box and wait until they are gone."""
        children = self.running()
        family = relatives(children)
        for number in (signal.SIGTERM, signal.SIGCONT):
            for pid in family:
                _kill(pid, number)
        deadline = time.monotonic() + grace
        for child in children:
            child.wait(max(0.0, deadline - time.monotonic()))
        for pid in relatives(self.running(), family):
            _kill(pid, signal.SIGKILL)
        for child in children:
            child.wait(1.0)

    def _finish_off(self, child: Child, family: set[int], grace: float) -> None:
        child.wait(grace)
        with self._lock:
            if child.exit_code is not None and child.pid in self._children:
                return  # The number already belongs to a newer child.
        _kill_all(child, relatives([child], family), signal.SIGKILL)


def _identity(uid: int | None, gid: int | None) -> tuple[int | None, int | None, list[int] | None]:
    own_uid, own_gid = os.getuid(), os.getgid()
    if (uid is None or uid == own_uid) and (gid is None or gid == own_gid):
        return None, None, None
    if os.geteuid() != 0:
        raise not_supported(f"this sandbox runs as uid {own_uid} only")
    return uid, gid, []


def relatives(children: Iterable[Child], known: Iterable[int] = ()) -> set[int]:
    """Find the living processes that `children` started, also those that left their session.

    A process belongs when its session or group is a child's, when its parent belongs, or when it
    still carries the child's marker in its environment.
    """
    leaders = {child.pid for child in children}
    markers = {f"{MARKER}={child.marker}".encode() for child in children}
    parents: dict[int, int] = {}
    family: set[int] = set()
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        fields = _read(f"/proc/{entry}/stat").rpartition(b") ")[2].split()
        if len(fields) < 4 or fields[0] in (b"Z", b"X"):
            continue
        pid, parents[int(entry)] = int(entry), int(fields[1])
        related = pid in known or bool(leaders & {pid, int(fields[2]), int(fields[3])})
        if related or not markers.isdisjoint(_read(f"/proc/{entry}/environ").split(b"\0")):
            family.add(pid)
    grown = True
    while grown:
        offspring = {pid for pid, parent in parents.items() if parent in family and pid not in family}
        family |= offspring
        grown = bool(offspring)
    return family


def _kill_all(child: Child, family: Iterable[int], number: int) -> None:
    child.signal(number)
    for pid in family:
        if pid != child.pid:
            _kill(pid, number)
    child.signal(signal.SIGCONT)


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as stream:
            return stream.readall()
    except OSError:
        return b""
