"""Metrics of the server process under their conventional Prometheus names."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from paddock.telemetry.prometheus import MetricsExposition

_OWN_PROCESS = Path("/proc/self")


def add_server_process_metrics(exposition: MetricsExposition) -> None:
    """Add memory, CPU time, start time and open files; does nothing without /proc."""
    try:
        fields = (_OWN_PROCESS / "stat").read_text().rpartition(")")[2].split()
        boot = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime "))
        opened = len(os.listdir(_OWN_PROCESS / "fd"))
    except (OSError, StopIteration):
        return
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    used = (int(fields[11]) + int(fields[12])) / ticks
    started = int(boot.split()[1]) + int(fields[19]) / ticks
    exposition.counter("process_cpu_seconds_total", "CPU time of the server.", [({}, used)])
    exposition.gauge("process_start_time_seconds", "When the server started, since the epoch.", [({}, started)])
    exposition.gauge("process_resident_memory_bytes", "Memory of the server.", [({}, int(fields[21]) * page)])
    exposition.gauge("process_virtual_memory_bytes", "Address space of the server.", [({}, int(fields[20]))])
    exposition.gauge("process_open_fds", "Open files of the server.", [({}, opened)])
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    exposition.gauge("process_max_fds", "Open files that the server may have.", [({}, limit)])
