"""The files that recordings are.

A `.padrec` begins with one line of JSON that says what it is: `{"format": "padrec", "version": 1, …}`. Each picture is
a line of JSON, `{"n", "at", "width", "height", "bytes"}`, then that many bytes of JPEG and a newline; `at` is in
seconds since 1970. It can be read while it grows, and after a crash up to the last whole picture.

The `.index` beside it has 24 bytes for each picture, so that any of them is found at once; it can always be made anew.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Self

from paddock.errors import NotFound
from paddock.model.screens import Frame

SUFFIX, INDEX_SUFFIX = ".padrec", ".index"
VERSION = 1
LONGEST_LINE = 4096
LARGEST_PICTURE = 32 * 2**20
_ENTRY = struct.Struct(">QIHHd")


class Entry(NamedTuple):
    """Where a picture is in its file, and what it is like."""

    offset: int
    """Of the JPEG itself."""
    size: int
    width: int
    height: int
    at: float


class Writer:
    """Appends pictures to a recording. Each is in the file before the index tells of it."""

    def __init__(self, data: int, index: int, size: int) -> None:
        self._data = data
        self._index = index
        self.size = size
        self.frames = 0
        self.width = 0
        self.height = 0

    @classmethod
    def create(cls, path: Path, about: Mapping[str, Any]) -> Self:
        """Begin a recording. Raises `OSError`."""
        line = json.dumps({"format": "padrec", "version": VERSION, **about}).encode() + b"\n"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        data = os.open(path, flags, 0o600)
        try:
            _write(data, line)
            index = os.open(path.with_suffix(INDEX_SUFFIX), flags, 0o600)
        except BaseException:
            os.close(data)
            path.unlink()
            raise
        return cls(data, index, len(line))

    def add(self, frame: Frame) -> None:
        """Append a picture. Raises `OSError`, and then the end of the file may be half a picture."""
        head = {
            "n": self.frames,
            "at": round(frame.at, 4),
            "width": frame.width,
            "height": frame.height,
            "bytes": len(frame.data),
        }
        line = json.dumps(head, separators=(",", ":")).encode() + b"\n"
        _write(self._data, b"".join((line, frame.data, b"\n")))
        entry = Entry(self.size + len(line), len(frame.data), frame.width, frame.height, frame.at)
        _write(self._index, _ENTRY.pack(*entry))
        self.size += len(line) + len(frame.data) + 1
        self.frames += 1
        self.width, self.height = max(self.width, frame.width), max(self.height, frame.height)

    def close(self) -> None:
        for descriptor in (self._data, self._index):
            try:
                os.fsync(descriptor)
            except OSError:
                pass  # What could not be written is not in the index either.
            os.close(descriptor)


def entry(path: Path, number: int) -> Entry:
    """Where one picture is. Raises `NotFound`."""
    try:
        with path.with_suffix(INDEX_SUFFIX).open("rb") as file:
            file.seek(number * _ENTRY.size)
            found = file.read(_ENTRY.size)
    except (OSError, ValueError, OverflowError):
        found = b""
    if len(found) < _ENTRY.size:
        raise NotFound(f"the recording has no picture {number}")
    return Entry(*_ENTRY.unpack(found))


def entries(path: Path) -> list[Entry]:
    """Where all pictures are."""
    content = path.with_suffix(INDEX_SUFFIX).read_bytes()
    whole = len(content) - len(content) % _ENTRY.size
    return [Entry(*each) for each in _ENTRY.iter_unpack(content[:whole])]


def picture(path: Path, place: Entry) -> bytes:
    """The JPEG at a place. Raises `NotFound`."""
    try:
        with path.open("rb") as file:
            file.seek(place.offset)
            data = file.read(place.size)
    except OSError:
        data = b""
    if len(data) < place.size:
        raise NotFound("the recording does not have this picture any more")
    return data


def repair(path: Path) -> list[Entry]:
    """Cut off what a crash left unfinished, and make the index anew. Returns where all pictures are."""
    with path.open("r+b") as file:
        found, end = [], 0
        for place, behind in _scan(file):
            end = behind
            if place is not None:
                found.append(place)
        file.truncate(end)
    partial = path.with_suffix(".partial")
    partial.write_bytes(b"".join(_ENTRY.pack(*place) for place in found))
    partial.replace(path.with_suffix(INDEX_SUFFIX))
    return found


def _scan(file: BinaryIO) -> Iterator[tuple[Entry | None, int]]:
    """Every whole picture and where it ends; first the end of the line that says what the file is."""
    length = os.fstat(file.fileno()).st_size
    head = file.readline(LONGEST_LINE)
    if not head.endswith(b"\n"):
        return
    end = len(head)
    yield None, end
    while line := file.readline(LONGEST_LINE):
        try:
            said = json.loads(line)
            size, offset = int(said["bytes"]), end + len(line)
            place = Entry(offset, size, int(said["width"]), int(said["height"]), float(said["at"]))
            _ENTRY.pack(*place)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError, struct.error):
            return
        end = offset + size + 1
        if not line.endswith(b"\n") or not 0 <= size <= LARGEST_PICTURE or end > length:
            return
        file.seek(end - 1)
        if file.read(1) != b"\n":
            return
        yield place, end


def _write(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
