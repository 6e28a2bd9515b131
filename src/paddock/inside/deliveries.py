"""Files for the host: what fits a task's paths and patterns, in one stream.

The stream is a row of JSON objects, one per line. A line with `file` is followed by the file's bytes in blocks, each
after its length in four bytes, and an empty block; then a line with `end` says whether the file stood still meanwhile.
Lengths are given block by block because files grow and shrink while they are read.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import stat
import time

from .errors import ApiError
from .places import Place, Places

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Segment = re.Pattern[str] | None

BLOCK = 1024 * 1024
LARGE = 64 * 1024
"""What is smaller is sent together with others, what is larger by the kernel, which need not copy it."""
BUFFER = 256 * 1024
MAX_DEPTH = 64
"""Directories within each other. Each of them is held open, and somebody may have made very many."""
SIGN_OF_LIFE = 1.0

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_CONTENT = {
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "pipe",
    stat.S_IFSOCK: "socket",
    stat.S_IFBLK: "device",
    stat.S_IFCHR: "device",
}


class _TooMany(Exception):
    """As many files have been sent as were asked for."""


class Delivery:
    """Sends files. A link is followed only where a task names it by itself, never where it is found."""

    def __init__(
        self, send: Callable[[bytes], None], send_file: Callable[[bytes, int, int, int], int], most_files: int
    ) -> None:
        self._send = send
        self._send_file = send_file
        self._left = most_files
        self._buffer = bytearray()
        self._sent: set[str] = set()
        self._spoke = time.monotonic()
        self._unreal = _kernel_file_systems()
        self._number = 0
        self._room = 0
        self._seen: set[str] = set()
        self._complained = False

    def deliver(self, number: int, path: str, max_size: int) -> None:
        """Send one deliverable: a file, a directory with all below it, or what fits a pattern."""
        self._number, self._room, self._seen, self._complained = number, max_size, set(), False
        try:
            if not self._named(path) and any(letter in path for letter in "*?["):
                self._pattern(path)
        except _TooMany:
            self._say(refused=path, why="many")
        self._say(done=True)

    def finish(self) -> None:
        self._put(b'{"over":true}\n')
        self._flush()

    def _named(self, path: str) -> bool:
        """Send what has exactly this name; False if nothing has."""
        places = Places("/")
        try:
            with places.find(path, follow=False) as place:
                status = place.stat()
                if not stat.S_ISLNK(status.st_mode):
                    self._send_named(place, status, path)
                    return True
        except ApiError as error:
            if error.status in (400, 404):  # 400: something on the way is no directory, or the name is too long.
                return False
            self._say(refused=path, why="denied")
            return True
        try:
            with places.find(path, follow=True) as place:
                status = place.stat()
                if stat.S_ISREG(status.st_mode):
                    self._send_named(place, status, path)
                else:
                    self._say(refused=path, why="link")
        except ApiError:
            self._say(refused=path, why="link")
        return True

    def _send_named(self, place: Place, status: os.stat_result, path: str) -> None:
        if stat.S_ISDIR(status.st_mode):
            directory = place.open(os.O_RDONLY | os.O_DIRECTORY)
            try:
                self._tree(directory, path.rstrip("/"), 0)
                if not self._seen and not self._complained:
                    self._say(refused=path, why="empty")
            finally:
                os.close(directory)
        elif stat.S_ISREG(status.st_mode):
            self._file(place.name, place.parent, path, status)
        else:
            self._say(refused=path, why=_NO_CONTENT.get(stat.S_IFMT(status.st_mode), "device"))

    def _pattern(self, path: str) -> None:
        segments = path.strip("/").split("/")
        first = next(index for index, each in enumerate(segments) if any(letter in each for letter in "*?["))
        base = "/" + "/".join(segments[:first])
        try:
            with Places("/").find(base, follow=True) as place:
                directory = place.open(os.O_RDONLY | os.O_DIRECTORY)
        except ApiError as error:
            if error.status == 403:
                self._say(refused=base, why="denied")
            return
        try:
            wild: list[Segment] = []
            for each in map(_segment, segments[first:]):
                if each is not None or wild[-1:] != [None]:  # `**/**` says no more than `**`, and takes much longer.
                    wild.append(each)
            self._match(directory, base.rstrip("/"), wild, 0)
        finally:
            os.close(directory)

    def _match(self, directory: int, shown: str, segments: list[Segment], depth: int) -> None:
        head, rest = segments[0], segments[1:]
        if head is None and not rest:
            self._tree(directory, shown, depth)
            return
        if head is None:
            self._match(directory, shown, rest, depth)
        for name, status in self._entries(directory, shown):
            path = f"{shown}/{name}"
            is_directory = stat.S_ISDIR(status.st_mode)
            if head is not None and not head.match(name):
                continue
            if head is not None and not rest:
                self._found(directory, name, path, status, depth)
            elif is_directory:
                below = self._enter(directory, name, path, depth)
                if below is not None:
                    try:
                        self._match(below, path, segments if head is None else rest, depth + 1)
                    finally:
                        os.close(below)

    def _tree(self, directory: int, shown: str, depth: int) -> None:
        for name, status in self._entries(directory, shown):
            self._found(directory, name, f"{shown}/{name}", status, depth)

    def _found(self, directory: int, name: str, path: str, status: os.stat_result, depth: int) -> None:
        if stat.S_ISDIR(status.st_mode):
            below = self._enter(directory, name, path, depth)
            if below is not None:
                try:
                    self._tree(below, path, depth + 1)
                finally:
                    os.close(below)
        elif path in self._seen:
            pass  # Patterns with several `**` come by a second time.
        elif stat.S_ISREG(status.st_mode):
            self._file(name, directory, path, status)
        else:
            self._seen.add(path)
            self._say(skipped=path, why=_NO_CONTENT.get(stat.S_IFMT(status.st_mode), "device"))

    def _entries(self, directory: int, shown: str) -> Iterator[tuple[str, os.stat_result]]:
        if time.monotonic() - self._spoke > SIGN_OF_LIFE:
            self._put(b"{}\n")
            self._flush()
        try:
            names = sorted(os.listdir(directory))
        except OSError:
            self._say(refused=shown, why="denied")
            return
        for name in names:
            try:
                yield name, os.stat(name, dir_fd=directory, follow_symlinks=False)
            except OSError:
                continue  # It vanished.

    def _enter(self, directory: int, name: str, path: str, depth: int) -> int | None:
        if depth + 1 >= MAX_DEPTH:
            self._say(refused=path, why="deep")
            return None
        try:
            below = os.open(name, _DIRECTORY, dir_fd=directory)
        except OSError:
            self._say(refused=path, why="denied")
            return None
        if os.fstat(below).st_dev in self._unreal:
            os.close(below)
            self._say(skipped=path, why="kernel")
            return None
        return below

    def _file(self, name: str, directory: int | None, path: str, status: os.stat_result) -> None:
        self._seen.add(path)
        if path in self._sent:
            self._say(again=path)
            return
        if self._left <= 0:
            raise _TooMany
        if status.st_dev in self._unreal:
            self._say(refused=path, why="kernel")
            return
        try:
            opened = os.open(name, _FILE, dir_fd=directory)
        except OSError:
            self._say(refused=path, why="denied")
            return
        try:
            for last in (False, False, True):
                status = os.fstat(opened)
                if not stat.S_ISREG(status.st_mode):
                    self._say(refused=path, why="changed")
                elif status.st_size > self._room:
                    self._say(refused=path, why="large", size=status.st_size)
                elif not self._content(opened, path, status, last):
                    continue
                return
        finally:
            os.close(opened)

    def _content(self, opened: int, path: str, status: os.stat_result, last: bool) -> bool:
        """Send a file's bytes; False if they are not what the file has, and it is to be sent again."""
        self._left -= 1
        self._say(file=path, executable=bool(status.st_mode & 0o111))
        left, end = status.st_size, ""
        # Never more than there was at first: a file that is written all the time would have no end.
        while left > 0 and not end:
            count, end = self._block(opened, status.st_size - left, left)
            left -= count
        now = os.fstat(opened)
        if not end and now.st_size != status.st_size:
            end = "grew" if now.st_size > status.st_size else "shrank"
        elif not end and now.st_mtime_ns != status.st_mtime_ns:
            end = "changed"
        if end == "broken" and not last:
            end = "again"
        else:
            self._room -= status.st_size - left
        if end not in ("again", "broken"):
            self._sent.add(path)
        self._put(bytes(4) + json.dumps({"end": end}).encode() + b"\n")
        return end != "again"

    def _block(self, opened: int, offset: int, left: int) -> tuple[int, str]:
        """Send the next bytes of a file; how many they were, and what is wrong, if something is."""
        try:
            now = os.fstat(opened).st_size - offset
            if now <= 0:
                return 0, "shrank"
            if now < LARGE or left < LARGE:
                data = os.pread(opened, min(left, LARGE), offset)
                if data:
                    self._put(len(data).to_bytes(4, "big") + data)
                return len(data), "" if data else "shrank"
            self._flush()
            count = min(now, left, BLOCK)
            sent = self._send_file(count.to_bytes(4, "big"), opened, offset, count)
        except OSError:
            return 0, "broken"
        # The length was out already and had to be kept to, so that what is not of the file came in the end.
        return count, "" if sent == count else "broken"

    def _say(self, **record: object) -> None:
        self._complained |= "why" in record
        self._put(json.dumps({"of": self._number, **record}).encode() + b"\n")

    def _put(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) >= BUFFER:
            self._flush()

    def _flush(self) -> None:
        data, self._buffer = bytes(self._buffer), bytearray()
        self._spoke = time.monotonic()
        if data:
            self._send(data)


def _segment(text: str) -> Segment:
    """What names fit one part of a pattern; None for `**`, which stands for any directories."""
    return None if text == "**" else re.compile(fnmatch.translate(text))


def _kernel_file_systems() -> set[int]:
    """File systems whose files are no files: they have no size, and some have no end."""
    found = set()
    for path in ("/proc", "/sys"):
        try:
            found.add(os.stat(path).st_dev)
        except OSError:
            continue
    return found - {os.stat("/").st_dev}
