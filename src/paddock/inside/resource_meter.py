"""CPU, memory and process usage of the sandbox."""

from __future__ import annotations

import os
import threading
import time
from math import inf

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_UNLIMITED = 1 << 60
_V2 = "/sys/fs/cgroup"


class ResourceMeter:
    """Reads the sandbox's control group if it is visible, and sums up its processes otherwise.

    `limits` are the host's limits, which a sandbox without a view of its control group cannot read itself.
    """

    def __init__(self, limits: dict[str, float]) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._last = (time.monotonic(), _cpu_seconds())

    def read_usage(self) -> dict[str, Any]:
        cores = min(_cpu_count(), self._limits.get("cpu", inf))
        total, used = _memory_total_and_used()
        total = int(min(total, self._limits.get("memory", inf)))
        return {
            "cpu_count": cores,
            "cpu_used_pct": self._cpu_percentage(cores),
            "mem_total_mib": round(total / 1048576, 2),
            "mem_used_mib": round(used / 1048576, 2),
            "pids": sum(int(_fields_after_name(text)[17]) for text in _read_each_process("stat")),
            "timestamp": int(time.time() * 1000),
        }

    def _cpu_percentage(self, cores: float) -> float:
        now, spent = time.monotonic(), _cpu_seconds()
        with self._lock:
            then, before = self._last
            if now - then < 0.05:
                time.sleep(0.05)
                now, spent = time.monotonic(), _cpu_seconds()
            self._last = (now, spent)
        return round(max(0.0, min(100.0, 100.0 * (spent - before) / (now - then) / cores)), 2)


def _cpu_count() -> float:
    quota, period = _read_words(f"{_V2}/cpu.max") or ["max", "100000"]
    if quota == "max":
        quota = (_read_words(f"{_V2}/cpu/cpu.cfs_quota_us") or ["-1"])[0]
        period = (_read_words(f"{_V2}/cpu/cpu.cfs_period_us") or ["100000"])[0]
    cores = len(os.sched_getaffinity(0))
    return min(float(cores), int(quota) / int(period)) if int(quota) > 0 else float(cores)


def _cpu_seconds() -> float:
    for line in _read_lines(f"{_V2}/cpu.stat"):
        if line.startswith("usage_usec "):
            return int(line.split()[1]) / 1e6
    if usage := _read_words(f"{_V2}/cpuacct/cpuacct.usage"):
        return int(usage[0]) / 1e9
    # Fields 14 to 17 of each process: its own time and that of its reaped children.
    ticks = sum(sum(map(int, _fields_after_name(text)[11:15])) for text in _read_each_process("stat"))
    return float(ticks) / os.sysconf("SC_CLK_TCK")


def _memory_total_and_used() -> tuple[int, int]:
    machine = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in _read_lines("/proc/meminfo") if ":" in line}
    total = machine.get("MemTotal", 0)
    pairs = (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    )
    for limit_name, used_name in pairs:
        limit, used = _read_words(f"{_V2}/{limit_name}"), _read_words(f"{_V2}/{used_name}")
        if limit and used:
            bounded = limit[0] != "max" and int(limit[0]) < _UNLIMITED
            return min(total, int(limit[0])) if bounded else total, int(used[0])
    pages = (text.split() for text in _read_each_process("statm"))
    return total, sum(int(resident) - int(shared) for _, resident, shared, *_ in pages) * os.sysconf("SC_PAGE_SIZE")


def _read_each_process(name: str) -> Iterator[str]:
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            text = _read_text(f"/proc/{entry}/{name}")
            if text:
                yield text


def _fields_after_name(text: str) -> list[str]:
    """Return the fields after the process name, which may contain brackets and newlines."""
    return text.rpartition(")")[2].split()


def _read_lines(path: str) -> list[str]:
    return _read_text(path).splitlines()


def _read_text(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


def _read_words(path: str) -> list[str]:
    lines = _read_lines(path)
    return lines[0].split() if lines else []
