"""Streams the files that match a task's deliverables to the host.

The stream is a sequence of JSON objects, one per line. A line with `file` is followed by the file's bytes in blocks,
each after its length in four bytes, and by an empty block; then a line with `end` says whether the file changed
meanwhile. Lengths are sent block by block because files grow and shrink while they are read.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import stat
import time

from ..errors import ApiError
from .paths import PathResolver, ResolvedPath

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Segment = re.Pattern[str] | None

BLOCK = 1024 * 1024
LARGE_BLOCK = 64 * 1024
"""Smaller blocks are buffered and sent together; larger ones are sent by the kernel without a copy."""
BUFFER_SIZE = 256 * 1024
MAX_DEPTH = 64
"""Maximum directory nesting; each level holds a descriptor open."""
HEARTBEAT_SECONDS = 1.0

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_CONTENT = {
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "pipe",
    stat.S_IFSOCK: "socket",
    stat.S_IFBLK: "device",
    stat.S_IFCHR: "device",
}


class _FileLimitReached(Exception):
    """The maximum number of files has been sent."""


class DeliverableSender:
    """Sends files. A link is followed only if the task names it, never one found in a directory."""

    def __init__(
        self, send: Callable[[bytes], None], send_file: Callable[[bytes, int, int, int], int], most_files: int
    ) -> None:
        self._send = send
        self._send_file = send_file
        self._files_left = most_files
        self._buffer = bytearray()
        self._sent_paths: set[str] = set()
        self._last_sent_at = time.monotonic()
        self._kernel_device_ids = _kernel_devices()
        self._deliverable_number = 0
        self._bytes_left = 0
        self._seen_paths: set[str] = set()
        self._has_sent_reason = False

    def send_deliverable(self, number: int, path: str, max_size: int) -> None:
        """Send one deliverable: a file, a directory tree, or all matches of a pattern."""
        self._deliverable_number, self._bytes_left, self._seen_paths, self._has_sent_reason = (
            number,
            max_size,
            set(),
            False,
        )
        try:
            if not self._send_by_name(path) and any(character in path for character in "*?["):
                self._send_matches(path)
        except _FileLimitReached:
            self._write_record(refused=path, why="many")
        self._write_record(done=True)

    def finish(self) -> None:
        self._buffer_bytes(b'{"over":true}\n')
        self._flush_buffer()

    def _send_by_name(self, path: str) -> bool:
        """Send the file or directory with exactly this name; False if there is none."""
        resolver = PathResolver("/")
        try:
            with resolver.resolve(path, follow=False) as resolved:
                status = resolved.stat()
                if not stat.S_ISLNK(status.st_mode):
                    self._send_path(resolved, status, path)
                    return True
        except ApiError as error:
            if error.status in (400, 404):  # 400: a parent is not a directory, or the name is too long.
                return False
            self._write_record(refused=path, why="denied")
            return True
        try:
            with resolver.resolve(path, follow=True) as resolved:
                status = resolved.stat()
                if stat.S_ISREG(status.st_mode):
                    self._send_path(resolved, status, path)
                else:
                    self._write_record(refused=path, why="link")
        except ApiError:
            self._write_record(refused=path, why="link")
        return True

    def _send_path(self, resolved: ResolvedPath, status: os.stat_result, path: str) -> None:
        if stat.S_ISDIR(status.st_mode):
            directory = resolved.open(os.O_RDONLY | os.O_DIRECTORY)
            try:
                self._send_tree(directory, path.rstrip("/"), 0)
                if not self._seen_paths and not self._has_sent_reason:
                    self._write_record(refused=path, why="empty")
            finally:
                os.close(directory)
        elif stat.S_ISREG(status.st_mode):
            self._send_regular_file(resolved.name, resolved.parent_fd, path, status)
        else:
            self._write_record(refused=path, why=_NO_CONTENT.get(stat.S_IFMT(status.st_mode), "device"))

    def _send_matches(self, path: str) -> None:
        segments = path.strip("/").split("/")
        first = next(index for index, each in enumerate(segments) if any(character in each for character in "*?["))
        base = "/" + "/".join(segments[:first])
        try:
            with PathResolver("/").resolve(base, follow=True) as resolved:
                directory = resolved.open(os.O_RDONLY | os.O_DIRECTORY)
        except ApiError as error:
            if error.status == 403:
                self._write_record(refused=base, why="denied")
            return
        try:
            remaining_segments: list[Segment] = []
            for each in map(_compile_segment, segments[first:]):
                if each is not None or remaining_segments[-1:] != [
                    None
                ]:  # `**/**` matches the same as `**` and takes much longer.
                    remaining_segments.append(each)
            self._match_segments(directory, base.rstrip("/"), remaining_segments, 0)
        finally:
            os.close(directory)

    def _match_segments(self, directory: int, shown: str, segments: list[Segment], depth: int) -> None:
        head, rest = segments[0], segments[1:]
        if head is None and not rest:
            self._send_tree(directory, shown, depth)
            return
        if head is None:
            self._match_segments(directory, shown, rest, depth)
        for name, status in self._list_entries(directory, shown):
            path = f"{shown}/{name}"
            is_directory = stat.S_ISDIR(status.st_mode)
            if head is not None and not head.match(name):
                continue
            if head is not None and not rest:
                self._send_entry(directory, name, path, status, depth)
            elif is_directory:
                below = self._open_subdirectory(directory, name, path, depth)
                if below is not None:
                    try:
                        self._match_segments(below, path, segments if head is None else rest, depth + 1)
                    finally:
                        os.close(below)

    def _send_tree(self, directory: int, shown: str, depth: int) -> None:
        for name, status in self._list_entries(directory, shown):
            self._send_entry(directory, name, f"{shown}/{name}", status, depth)

    def _send_entry(self, directory: int, name: str, path: str, status: os.stat_result, depth: int) -> None:
        if stat.S_ISDIR(status.st_mode):
            below = self._open_subdirectory(directory, name, path, depth)
            if below is not None:
                try:
                    self._send_tree(below, path, depth + 1)
                finally:
                    os.close(below)
        elif path in self._seen_paths:
            pass  # Patterns with several `**` reach a path more than once.
        elif stat.S_ISREG(status.st_mode):
            self._send_regular_file(name, directory, path, status)
        else:
            self._seen_paths.add(path)
            self._write_record(skipped=path, why=_NO_CONTENT.get(stat.S_IFMT(status.st_mode), "device"))

    def _list_entries(self, directory: int, shown: str) -> Iterator[tuple[str, os.stat_result]]:
        if time.monotonic() - self._last_sent_at > HEARTBEAT_SECONDS:
            self._buffer_bytes(b"{}\n")
            self._flush_buffer()
        try:
            names = sorted(os.listdir(directory))
        except OSError:
            self._write_record(refused=shown, why="denied")
            return
        for name in names:
            try:
                yield name, os.stat(name, dir_fd=directory, follow_symlinks=False)
            except OSError:
                continue  # It vanished.

    def _open_subdirectory(self, directory: int, name: str, path: str, depth: int) -> int | None:
        if depth + 1 >= MAX_DEPTH:
            self._write_record(refused=path, why="deep")
            return None
        try:
            below = os.open(name, _DIRECTORY, dir_fd=directory)
        except OSError:
            self._write_record(refused=path, why="denied")
            return None
        if os.fstat(below).st_dev in self._kernel_device_ids:
            os.close(below)
            self._write_record(skipped=path, why="kernel")
            return None
        return below

    def _send_regular_file(self, name: str, directory: int | None, path: str, status: os.stat_result) -> None:
        self._seen_paths.add(path)
        if path in self._sent_paths:
            self._write_record(again=path)
            return
        if self._files_left <= 0:
            raise _FileLimitReached
        if status.st_dev in self._kernel_device_ids:
            self._write_record(refused=path, why="kernel")
            return
        try:
            opened = os.open(name, _FILE, dir_fd=directory)
        except OSError:
            self._write_record(refused=path, why="denied")
            return
        try:
            for last in (False, False, True):
                status = os.fstat(opened)
                if not stat.S_ISREG(status.st_mode):
                    self._write_record(refused=path, why="changed")
                elif status.st_size > self._bytes_left:
                    self._write_record(refused=path, why="large", size=status.st_size)
                elif not self._send_content(opened, path, status, last):
                    continue
                return
        finally:
            os.close(opened)

    def _send_content(self, opened: int, path: str, status: os.stat_result, last: bool) -> bool:
        """Send a file's bytes; False if they were not read completely and the file must be sent again."""
        self._files_left -= 1
        self._write_record(file=path, executable=bool(status.st_mode & 0o111))
        left, end = status.st_size, ""
        # Never more than the first size: a file that is written all the time would have no end.
        while left > 0 and not end:
            count, end = self._send_block(opened, status.st_size - left, left)
            left -= count
        now = os.fstat(opened)
        if not end and now.st_size != status.st_size:
            end = "grew" if now.st_size > status.st_size else "shrank"
        elif not end and now.st_mtime_ns != status.st_mtime_ns:
            end = "changed"
        if end == "broken" and not last:
            end = "again"
        else:
            self._bytes_left -= status.st_size - left
        if end not in ("again", "broken"):
            self._sent_paths.add(path)
        self._buffer_bytes(bytes(4) + json.dumps({"end": end}).encode() + b"\n")
        return end != "again"

    def _send_block(self, opened: int, offset: int, left: int) -> tuple[int, str]:
        """Send the next block; return its size and the reason why the file ends early, if it does."""
        try:
            now = os.fstat(opened).st_size - offset
            if now <= 0:
                return 0, "shrank"
            if now < LARGE_BLOCK or left < LARGE_BLOCK:
                data = os.pread(opened, min(left, LARGE_BLOCK), offset)
                if data:
                    self._buffer_bytes(len(data).to_bytes(4, "big") + data)
                return len(data), "" if data else "shrank"
            self._flush_buffer()
            count = min(now, left, BLOCK)
            sent = self._send_file(count.to_bytes(4, "big"), opened, offset, count)
        except OSError:
            return 0, "broken"
        # The announced length is padded with zeros if the file was shorter, so the block is not valid.
        return count, "" if sent == count else "broken"

    def _write_record(self, **record: object) -> None:
        self._has_sent_reason |= "why" in record
        self._buffer_bytes(json.dumps({"of": self._deliverable_number, **record}).encode() + b"\n")

    def _buffer_bytes(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) >= BUFFER_SIZE:
            self._flush_buffer()

    def _flush_buffer(self) -> None:
        data, self._buffer = bytes(self._buffer), bytearray()
        self._last_sent_at = time.monotonic()
        if data:
            self._send(data)


def _compile_segment(text: str) -> Segment:
    """Compile one segment of a pattern; None for `**`, which matches any number of directories."""
    return None if text == "**" else re.compile(fnmatch.translate(text))


def _kernel_devices() -> set[int]:
    """Return the device ids of /proc and /sys: their files have no size and may have no end."""
    found = set()
    for path in ("/proc", "/sys"):
        try:
            found.add(os.stat(path).st_dev)
        except OSError:
            continue
    return found - {os.stat("/").st_dev}
