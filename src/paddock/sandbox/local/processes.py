"""Finding, watching and ending the processes of a box from outside."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Identity:
    """One particular process, told apart from any later one that gets the same number."""

    pid: int
    pid_namespace: int
    boot: str

    def alive(self) -> bool:
        return self.boot == boot_id() and pid_namespace(self.pid) == self.pid_namespace


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def pid_namespace(pid: int) -> int | None:
    """The number of the process's pid namespace, or None when the process is gone (or only its husk is left)."""
    try:
        link = os.readlink(f"/proc/{pid}/ns/pid")
        return int(link.removeprefix("pid:[").removesuffix("]"))
    except OSError:
        return None


def members(namespace: int) -> set[int]:
    """Every process of a pid namespace, as numbered on the host."""
    pids = (int(entry) for entry in os.listdir("/proc") if entry.isdigit())
    return {pid for pid in pids if pid_namespace(pid) == namespace}


def send(pids: set[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def stop_all(namespace: int, rounds: int = 100) -> None:
    """Stop every process of a namespace; processes born meanwhile are caught in the next round."""
    stopped: set[int] = set()
    for _ in range(rounds):
        fresh = members(namespace) - stopped
        if not fresh:
            return
        send(fresh, signal.SIGSTOP)
        stopped |= fresh
    raise TimeoutError("the box makes processes faster than they can be stopped")


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
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(") ")[2].startswith("T")


def kill_first(identity: Identity, thaw: Callable[[], None], timeout: float = 10.0) -> None:
    """Kill a box's first process, whereupon the kernel kills all others of its namespace, and wait for that.

    `thaw` is called once the signal is under way: a frozen process cannot die, and must not run again either.
    """
    try:
        descriptor = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return
    try:
        if not identity.alive():
            return
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        thaw()
        deadline = time.monotonic() + timeout
        while pid_namespace(identity.pid) == identity.pid_namespace:
            if time.monotonic() > deadline:
                raise TimeoutError(f"process {identity.pid} would not die")
            time.sleep(0.001)
    finally:
        os.close(descriptor)


async def ended(identity: Identity) -> None:
    """Return when the process has ended, sleeping on its pidfd until then."""
    try:
        descriptor = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return
    try:
        if not identity.alive():
            return
        loop = asyncio.get_running_loop()
        gone = asyncio.Event()
        loop.add_reader(descriptor, gone.set)
        try:
            await gone.wait()
        finally:
            loop.remove_reader(descriptor)
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
def memory_file(name: str, content: bytes) -> Iterator[int]:
    """A descriptor that reads `content` once, for handing secrets and programs to a child without a path."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    try:
        os.write(descriptor, content)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)
