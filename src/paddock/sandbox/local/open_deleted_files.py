"""Find files that have no name any more but use disk space, since a process still has them open."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

from paddock.sandbox.base import OpenDeletedFiles

MAX_DESCRIPTORS = 200_000
"""Descriptors that are looked at; a sandbox with more is treated as one that hides some."""
BLOCK = 512
_MEMORY_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs", "devtmpfs", "hugetlbfs", "mqueue", "proc", "sysfs", "devpts"})
_UNACCEPTED = b"0"
"""The inode that /proc/net/unix shows for a connection that was not accepted yet."""


def find_open_deleted_files(pids: Collection[int], daemon: int, disk: Path) -> OpenDeletedFiles:
    """Sum up files without a name that these processes have open or mapped.

    Files in memory do not count; `disk` is a path on the file system that does, even if that is in memory. The daemon
    may forbid others than root to look at its files.
    """
    search = _Search(os.stat(disk).st_dev)
    for pid in pids:
        try:
            search.add_process(pid)
        except PermissionError:
            search.may_hide_more |= pid != daemon
    return OpenDeletedFiles(sum(search.sizes.values()), search.may_hide_more)


class _Search:
    def __init__(self, disk: int) -> None:
        self.sizes: dict[tuple[int, int], int] = {}
        """Allocated bytes by device and inode."""
        self.may_hide_more = False
        self._disk = disk
        self._memory: dict[str, frozenset[int]] = {}
        """Devices of file systems in memory, by mount namespace."""
        self._networks = {os.readlink("/proc/self/ns/net")}
        """Network namespaces that need not be looked at: the server's own, of bubblewrap's monitor, and known ones."""
        self._left = MAX_DESCRIPTORS

    def add_process(self, pid: int) -> None:
        process = f"/proc/{pid}"
        try:
            memory = self._memory_devices(process)
            descriptors = os.listdir(f"{process}/fd")
            self._add_network(process)
            self._add_mapped(process, memory)
        except (FileNotFoundError, ProcessLookupError):
            return  # It has ended.
        self._add(f"{process}/exe", memory)
        for number in descriptors:
            self._left -= 1
            if self._left < 0:
                self.may_hide_more = True
                return
            mode = self._add(f"{process}/fd/{number}", memory)
            if stat.S_ISSOCK(mode) and _carries_descriptors(f"{process}/fdinfo/{number}"):
                self.may_hide_more = True

    def _add(self, path: str, memory: frozenset[int]) -> int:
        """Add a file if it counts, and return its mode."""
        try:
            found = os.stat(path)
        except OSError:
            return 0
        if stat.S_ISREG(found.st_mode) and found.st_nlink == 0 and found.st_dev not in memory:
            self.sizes[found.st_dev, found.st_ino] = found.st_blocks * BLOCK
        return found.st_mode

    def _add_mapped(self, process: str, memory: frozenset[int]) -> None:
        for addresses, device in _deleted_mappings(Path(f"{process}/maps").read_bytes()):
            path = f"{process}/map_files/{addresses}"
            # Only root may look at mapped files; others see that there are some.
            if not self._add(path, memory) and device not in memory:
                self.may_hide_more = True

    def _add_network(self, process: str) -> None:
        network = os.readlink(f"{process}/ns/net")
        if network not in self._networks:
            self._networks.add(network)
            lines = Path(f"{process}/net/unix").read_bytes().splitlines()[1:]
            # What was sent over a connection before it is accepted is nowhere to be seen.
            self.may_hide_more |= any(line.split(None, 7)[6:7] == [_UNACCEPTED] for line in lines)

    def _memory_devices(self, process: str) -> frozenset[int]:
        namespace = os.readlink(f"{process}/ns/mnt")
        if namespace not in self._memory:
            found = set(_mounted_memory(Path(f"{process}/mountinfo").read_text(errors="replace")))
            self._memory[namespace] = frozenset(found | {_shared_memory_device()}) - {self._disk}
        return self._memory[namespace]


def _mounted_memory(mountinfo: str) -> Iterator[int]:
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        if after.split(" ", 1)[0] in _MEMORY_FILE_SYSTEMS:
            major, _, minor = before.split(" ", 3)[2].partition(":")
            yield os.makedev(int(major), int(minor))


def _shared_memory_device() -> int:
    """Return the device of memory files and shared memory, which is mounted nowhere."""
    descriptor = os.memfd_create("probe", os.MFD_CLOEXEC)
    try:
        return os.fstat(descriptor).st_dev
    finally:
        os.close(descriptor)


def _deleted_mappings(maps: bytes) -> Iterator[tuple[str, int]]:
    """Yield addresses, as named in `map_files`, and device of mapped files that have no name."""
    for line in maps.splitlines():
        if line.endswith(b" (deleted)"):
            addresses, _, _, device, _ = line.split(None, 5)[:5]
            start, _, end = addresses.partition(b"-")
            major, _, minor = device.partition(b":")
            yield f"{int(start, 16):x}-{int(end, 16):x}", os.makedev(int(major, 16), int(minor, 16))


def _carries_descriptors(path: str) -> bool:
    """Return whether descriptors were sent to a socket and not received yet."""
    try:
        lines = Path(path).read_bytes().splitlines()
    except OSError:
        return False
    return any(line.startswith(b"scm_fds:") and line.split()[-1] != b"0" for line in lines)
