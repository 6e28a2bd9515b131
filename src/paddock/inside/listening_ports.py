"""Ports on which programs in the sandbox listen for TCP connections, as the kernel lists them."""

from __future__ import annotations

import os

LISTEN_STATE = "0A"
MAX_LINES = 4096
"""Lines read of each table."""
MAX_PORTS = 256


def read_listening_ports() -> list[int]:
    """Return ports in ascending order, without this process's own."""
    own = _own_socket_inodes()
    ports: set[int] = set()
    for table in ("tcp", "tcp6"):
        ports.update(_read_table(f"/proc/self/net/{table}", own))
    return sorted(ports)[:MAX_PORTS]


def _read_table(path: str, own: set[str]) -> set[int]:
    ports = set()
    try:
        with open(path, encoding="ascii") as table:
            next(table, None)
            for _, line in zip(range(MAX_LINES), table, strict=False):
                fields = line.split()
                if len(fields) < 10 or fields[3] != LISTEN_STATE:
                    break  # The kernel lists listening sockets first.
                if fields[9] not in own:
                    ports.add(int(fields[1].rpartition(":")[2], 16))
    except OSError:
        pass  # The kernel has no IPv6.
    return ports


def _own_socket_inodes() -> set[str]:
    inodes = set()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            continue  # Closed meanwhile.
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    return inodes
