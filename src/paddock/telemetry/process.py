"""Numbers of the server's own process, under the names that all programs give them."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from paddock.telemetry.exposition import Exposition

_HERE = Path("/proc/self")


def add_process(told: Exposition) -> None:
    """Add memory, CPU time, start time and open files; nothing where there is no /proc."""
    try:
        fields = (_HERE / "stat").read_text().rpartition(")")[2].split()
        boot = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime "))
        opened = len(os.listdir(_HERE / "fd"))
    except (OSError, StopIteration):
        return
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    used = (int(fields[11]) + int(fields[12])) / ticks
    started = int(boot.split()[1]) + int(fields[19]) / ticks
    told.counter("process_cpu_seconds_total", "CPU time of the server.", [({}, used)])
    told.gauge("process_start_time_seconds", "When the server started, since the epoch.", [({}, started)])
    told.gauge("process_resident_memory_bytes", "Memory of the server.", [({}, int(fields[21]) * page)])
    told.gauge("process_virtual_memory_bytes", "Address space of the server.", [({}, int(fields[20]))])
    told.gauge("process_open_fds", "Open files of the server.", [({}, opened)])
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    told.gauge("process_max_fds", "Open files that the server may have.", [({}, most)])
