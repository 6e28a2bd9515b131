"""The processes of the box, as the kernel lists them."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def processes() -> Iterator[tuple[int, str]]:
    """Yield the ids and names of all processes."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/comm") as stream:
                    yield int(name), stream.read().strip()
            except OSError:
                continue


def _status(pid: int, field: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stream:
            return int(stream.read().rpartition(")")[2].split()[field])
    except (OSError, ValueError, IndexError):
        return 0


def parent(pid: int) -> int:
    return _status(pid, 1)


def session_of(pid: int) -> int:
    """Return who began the session that a process belongs to, whether or not they have ended."""
    return _status(pid, 3)


def members(group: int) -> list[int]:
    """Return the processes of a process group."""
    return [pid for pid, _ in processes() if _status(pid, 2) == group]


def ancestors(pid: int) -> list[int]:
    found: list[int] = []
    while pid > 1 and len(found) < 64:
        pid = parent(pid)
        found.append(pid)
    return found


def descendants(pid: int) -> list[int]:
    return [other for other, _ in processes() if other != pid and pid in ancestors(other)]


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stream:
            return stream.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (OSError, IndexError):
        return False
