"""Reads the process list from /proc."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def list_processes() -> Iterator[tuple[int, str]]:
    """Yield the ids and names of all processes."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/comm") as stream:
                    yield int(name), stream.read().strip()
            except OSError:
                continue


def _read_stat_field(pid: int, field: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stream:
            return int(stream.read().rpartition(")")[2].split()[field])
    except (OSError, ValueError, IndexError):
        return 0


def parent_pid(pid: int) -> int:
    return _read_stat_field(pid, 1)


def process_session_id(pid: int) -> int:
    """Return the session id of a process: the pid of the session leader, which may have ended."""
    return _read_stat_field(pid, 3)


def process_group_members(group: int) -> list[int]:
    """Return the pids of a process group."""
    return [pid for pid, _ in list_processes() if _read_stat_field(pid, 2) == group]


def ancestor_pids(pid: int) -> list[int]:
    found: list[int] = []
    while pid > 1 and len(found) < 64:
        pid = parent_pid(pid)
        found.append(pid)
    return found


def descendant_pids(pid: int) -> list[int]:
    return [other for other, _ in list_processes() if other != pid and pid in ancestor_pids(other)]


def is_process_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stream:
            return stream.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (OSError, IndexError):
        return False
