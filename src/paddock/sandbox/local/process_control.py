"""Find, watch and kill processes of a sandbox from the host."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NS_GET_PARENT = 0xB702
ENDED_STATES = ("Z", "X", "x")


@dataclass(frozen=True)
class ProcessIdentity:
    """A process, distinguished from later ones with the same pid."""

    pid: int
    pid_namespace: int
    boot: str

    def alive(self) -> bool:
        return (
            self.boot == boot_id()
            and pid_namespace(self.pid) == self.pid_namespace
            and process_state(self.pid) not in ENDED_STATES
        )


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def pid_namespace(pid: int) -> int | None:
    """Return the inode of the process's pid namespace, or None if it is gone."""
    try:
        link = os.readlink(f"/proc/{pid}/ns/pid")
        return int(link.removeprefix("pid:[").removesuffix("]"))
    except OSError:
        return None


def process_state(pid: int) -> str:
    """Return the kernel's state letter of a process, `X` if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "X"
    return text.rpartition(") ")[2][:1]


def parent_pid(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
    except OSError:
        return 0


def namespace_members(namespace: int) -> set[int]:
    """Return host pids of all processes in a pid namespace and its descendants."""
    belongs = {namespace: True, pid_namespace(os.getpid()): False}
    found = set()
    for pid in _all_pids():
        number = pid_namespace(pid)
        if number is None:
            continue
        if number not in belongs:
            belongs[number] = namespace in _ancestors(pid)
        if belongs[number] and process_state(pid) not in ENDED_STATES:
            found.add(pid)
    return found


def _all_pids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def _ancestors(pid: int) -> set[int]:
    """Return the ancestors of a process's pid namespace, as far as visible."""
    found: set[int] = set()
    try:
        descriptor = os.open(f"/proc/{pid}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return found
    while True:
        try:
            above = fcntl.ioctl(descriptor, NS_GET_PARENT)
        except OSError:
            return found
        finally:
            os.close(descriptor)
        found.add(os.fstat(above).st_ino)
        descriptor = above


def signal_processes(pids: set[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def stop_namespace_processes(namespace: int, timeout: float = 10.0) -> None:
    """Stop every process of a namespace. Raises `TimeoutError`.

    Running processes may fork or wake others, so two scans in a row must find all stopped. A process in an
    uninterruptible wait stops when the wait ends.
    """
    deadline = time.monotonic() + timeout
    signalled: set[int] = set()
    quiet_scans = 0
    while quiet_scans < 2:
        members = namespace_members(namespace)
        running = {
            pid for pid in members if not (is_process_stopped(pid) or (pid in signalled and process_state(pid) == "D"))
        }
        signal_processes(running, signal.SIGSTOP)
        signalled |= running
        quiet_scans = 0 if running else quiet_scans + 1
        if time.monotonic() > deadline:
            raise TimeoutError("the sandbox's processes could not be stopped")
        time.sleep(0.001)


def continue_namespace_processes(namespace: int) -> None:
    signal_processes(namespace_members(namespace), signal.SIGCONT)


def kill_namespace_processes(namespace: int, spare: int, timeout: float = 10.0) -> None:
    """Kill every process of a namespace except one. Raises `TimeoutError`."""
    deadline = time.monotonic() + timeout
    while victims := namespace_members(namespace) - {spare}:
        signal_processes(victims, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes did not die: {sorted(victims)}")
        time.sleep(0.002)


def is_process_stopped(pid: int) -> bool:
    return process_state(pid) == "T"


def kill_log_writers(log: Path, timeout: float = 10.0) -> None:
    """Kill every process that has this file as standard output, and its children. Raises `TimeoutError`."""
    deadline = time.monotonic() + timeout
    while victims := _writers(log):
        signal_processes(victims, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes did not die: {sorted(victims)}")
        time.sleep(0.001)


def _writers(log: Path) -> set[int]:
    found: set[int] = set()
    try:
        wanted = log.stat()
    except OSError:
        return found
    for pid in _all_pids():
        try:
            if os.path.samestat(os.stat(f"/proc/{pid}/fd/1"), wanted):
                found.add(pid)
        except OSError:
            continue
    # The first process of an ordinary user's sandbox hides its descriptors, but not its parent.
    return found | {pid for pid in _all_pids() if found and parent_pid(pid) in found}


def kill_init_process(identity: ProcessIdentity, thaw: Callable[[], None], timeout: float = 10.0) -> None:
    """Kill a sandbox's init process and wait; the kernel then kills its whole pid namespace.

    `thaw` is called after the signal, because frozen processes cannot die but must not run again.
    """
    with _open_pidfd(identity) as descriptor:
        if descriptor is None:
            return
        try:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        except ProcessLookupError:
            return  # The process ended in between.
        thaw()
        deadline = time.monotonic() + timeout
        while identity.alive():
            if time.monotonic() > deadline:
                raise TimeoutError(f"process {identity.pid} did not die")
            time.sleep(0.001)


async def wait_for_exit(identity: ProcessIdentity) -> None:
    """Wait for the end of a process on its pidfd."""
    with _open_pidfd(identity) as descriptor:
        if descriptor is None:
            return
        loop = asyncio.get_running_loop()
        exited = asyncio.Event()
        loop.add_reader(descriptor, exited.set)
        try:
            await exited.wait()
        finally:
            loop.remove_reader(descriptor)


@contextmanager
def _open_pidfd(identity: ProcessIdentity) -> Iterator[int | None]:
    """Open a pidfd, verified against pid reuse; None if the process is gone."""
    try:
        descriptor = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        yield None
        return
    try:
        yield descriptor if identity.alive() else None
    finally:
        os.close(descriptor)


def read_bwrap_report(path: Path) -> dict[str, Any]:
    """Read bubblewrap's status: init process, namespaces, and the exit code after the end."""
    report: dict[str, Any] = {}
    try:
        for line in path.read_text().splitlines():
            report.update(json.loads(line))
    except (OSError, ValueError):
        pass
    return report


def identity_from_report(report: dict[str, Any], boot: str) -> ProcessIdentity | None:
    try:
        return ProcessIdentity(int(report["child-pid"]), int(report["pid-namespace"]), boot)
    except (KeyError, ValueError):
        return None


@contextmanager
def open_two_way_pipe() -> Iterator[int]:
    """Open a bidirectional pipe as one descriptor."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    try:
        two_way = os.open(f"/proc/self/fd/{reader}", os.O_RDWR | os.O_CLOEXEC)
    finally:
        os.close(reader)
        os.close(writer)
    try:
        yield two_way
    finally:
        os.close(two_way)


@contextmanager
def open_memory_file(name: str, content: bytes) -> Iterator[int]:
    """Open an in-memory file with `content`, to pass secrets and programs to a child without a path."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    try:
        os.write(descriptor, content)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)
