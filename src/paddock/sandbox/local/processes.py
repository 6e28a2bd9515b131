"""Finding, watching and ending the processes of a box from outside."""

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
ENDED = ("Z", "X", "x")


@dataclass(frozen=True)
class Identity:
    """One particular process, told apart from any later one that gets the same number."""

    pid: int
    pid_namespace: int
    boot: str

    def alive(self) -> bool:
        return self.boot == boot_id() and pid_namespace(self.pid) == self.pid_namespace and state(self.pid) not in ENDED


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def pid_namespace(pid: int) -> int | None:
    """The number of the process's pid namespace, or None when the process is gone."""
    try:
        link = os.readlink(f"/proc/{pid}/ns/pid")
        return int(link.removeprefix("pid:[").removesuffix("]"))
    except OSError:
        return None


def state(pid: int) -> str:
    """The letter the kernel has for what the process does, `X` when there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "X"
    return text.rpartition(") ")[2][:1]


def parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
    except OSError:
        return 0


def members(namespace: int) -> set[int]:
    """Every living process of a pid namespace and of those made inside it, as numbered on the host."""
    belongs = {namespace: True, pid_namespace(os.getpid()): False}
    found = set()
    for pid in _all():
        number = pid_namespace(pid)
        if number is None:
            continue
        if number not in belongs:
            belongs[number] = namespace in _ancestors(pid)
        if belongs[number] and state(pid) not in ENDED:
            found.add(pid)
    return found


def _all() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def _ancestors(pid: int) -> set[int]:
    """The pid namespaces that a process's own was made in, as far up as this process may see."""
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


def send(pids: set[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def stop_all(namespace: int, timeout: float = 10.0) -> None:
    """Stop every process of a namespace. Raises `TimeoutError`.

    Processes may be born meanwhile, and those not stopped yet may wake others: two looks in a row must find all still.
    A process in an uninterruptible wait stops when that ends, and cannot act before.
    """
    deadline = time.monotonic() + timeout
    signalled: set[int] = set()
    still = 0
    while still < 2:
        now = members(namespace)
        moving = {pid for pid in now if not (stopped(pid) or (pid in signalled and state(pid) == "D"))}
        send(moving, signal.SIGSTOP)
        signalled |= moving
        still = 0 if moving else still + 1
        if time.monotonic() > deadline:
            raise TimeoutError("the box's processes could not be stopped")
        time.sleep(0.001)


def continue_all(namespace: int) -> None:
    send(members(namespace), signal.SIGCONT)


def kill_all(namespace: int, spare: int, timeout: float = 10.0) -> None:
    """Kill every process of a namespace but one. Raises `TimeoutError`."""
    deadline = time.monotonic() + timeout
    while victims := members(namespace) - {spare}:
        send(victims, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes would not die: {sorted(victims)}")
        time.sleep(0.002)


def stopped(pid: int) -> bool:
    return state(pid) == "T"


def kill_writers(log: Path, timeout: float = 10.0) -> None:
    """Kill every process whose standard output is this file, and its children. Raises `TimeoutError`."""
    deadline = time.monotonic() + timeout
    while victims := _writers(log):
        send(victims, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes would not die: {sorted(victims)}")
        time.sleep(0.001)


def _writers(log: Path) -> set[int]:
    found: set[int] = set()
    try:
        wanted = log.stat()
    except OSError:
        return found
    for pid in _all():
        try:
            if os.path.samestat(os.stat(f"/proc/{pid}/fd/1"), wanted):
                found.add(pid)
        except OSError:
            continue
    # The first process of an ordinary user's box hides its descriptors, but not whose child it is.
    return found | {pid for pid in _all() if found and parent(pid) in found}


def kill_first(identity: Identity, thaw: Callable[[], None], timeout: float = 10.0) -> None:
    """Kill a box's first process, whereupon the kernel kills all others of its namespace, and wait for that.

    `thaw` is called once the signal is under way: a frozen process cannot die, and must not run again either.
    """
    with _held(identity) as descriptor:
        if descriptor is None:
            return
        try:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        except ProcessLookupError:
            return  # It has ended since it was looked at.
        thaw()
        deadline = time.monotonic() + timeout
        while identity.alive():
            if time.monotonic() > deadline:
                raise TimeoutError(f"process {identity.pid} would not die")
            time.sleep(0.001)


async def ended(identity: Identity) -> None:
    """Return when the process has ended, sleeping on its pidfd until then."""
    with _held(identity) as descriptor:
        if descriptor is None:
            return
        loop = asyncio.get_running_loop()
        gone = asyncio.Event()
        loop.add_reader(descriptor, gone.set)
        try:
            await gone.wait()
        finally:
            loop.remove_reader(descriptor)


@contextmanager
def _held(identity: Identity) -> Iterator[int | None]:
    """A descriptor of the process, or None when it is gone: checked after it is held, so it is no other's."""
    try:
        descriptor = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        yield None
        return
    try:
        yield descriptor if identity.alive() else None
    finally:
        os.close(descriptor)


def bwrap_report(path: Path) -> dict[str, Any]:
    """What bubblewrap wrote about a box: its first process and namespaces, and its exit code once it has ended."""
    report: dict[str, Any] = {}
    try:
        for line in path.read_text().splitlines():
            report.update(json.loads(line))
    except (OSError, ValueError):
        pass
    return report


def identity_of(report: dict[str, Any], boot: str) -> Identity | None:
    try:
        return Identity(int(report["child-pid"]), int(report["pid-namespace"]), boot)
    except (KeyError, ValueError):
        return None


@contextmanager
def two_way_pipe() -> Iterator[int]:
    """A descriptor that reads what is written to it, for who has room for one only."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    try:
        both = os.open(f"/proc/self/fd/{reader}", os.O_RDWR | os.O_CLOEXEC)
    finally:
        os.close(reader)
        os.close(writer)
    try:
        yield both
    finally:
        os.close(both)


@contextmanager
def memory_file(name: str, content: bytes) -> Iterator[int]:
    """A descriptor that reads `content` once, for handing secrets and programs to a child without a path."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    try:
        os.write(descriptor, content)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)
