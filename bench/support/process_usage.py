"""CPU time and memory of processes."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path


def process_cpu_seconds(process: int) -> float:
    # CPU clock id of a process, computed as in clock_getcpuclockid(3).
    try:
        return time.clock_gettime(~process << 3 | 2)
    except OSError:
        return 0.0


def process_tree(process: int) -> list[int]:
    """Return a process and all its descendants."""
    found = [process]
    for each in found:
        with suppress(OSError):
            for task in Path(f"/proc/{each}/task").iterdir():
                with suppress(OSError):
                    found += [int(child) for child in (task / "children").read_text().split()]
    return found


def process_memory(process: int) -> int:
    with suppress(OSError, StopIteration):
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
    return 0


def thread_cpu_seconds(process: int) -> float:
    """Return CPU seconds of a process's current threads; clock ticks would be too coarse."""
    used = 0
    with suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            with suppress(OSError):
                used += int((task / "schedstat").read_text().split()[0])
    return used / 1e9


def tree_cpu_seconds(process: int) -> float:
    """Return CPU seconds of a process and its descendants."""
    return thread_cpu_seconds(process) + sum(map(tree_cpu_seconds, child_processes(process)))


def child_processes(process: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found
