"""Reads, writes and repairs `.padrec` recording files and their indexes.

A `.padrec` file begins with one line of JSON: `{"format": "padrec", "version": 1, …}`. Each picture is
a line of JSON, `{"n", "at", "width", "height", "bytes"}`, then that many bytes of JPEG and a newline; `at` is in
seconds since 1970. The file can be read while it grows, and after a crash up to the last complete picture.

The `.index` beside it has 24 bytes per picture for random access; it can always be rebuilt.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Self

from paddock.errors import NotFound
from paddock.model.screens import ScreenFrame

SUFFIX, INDEX_SUFFIX = ".padrec", ".index"
VERSION = 1
MAX_LINE = 4096
MAX_PICTURE_SIZE = 32 * 2**20
_ENTRY = struct.Struct(">QIHHd")


class PictureIndexEntry(NamedTuple):
    """Position, size, dimensions and time of a picture."""

    offset: int
    """Offset of the JPEG data."""
    size: int
    width: int
    height: int
    at: float


class PadrecWriter:
    """Appends pictures to a recording, each to the data file before the index."""

    def __init__(self, data: int, index: int, size: int) -> None:
        self._data = data
        self._index = index
        self.size = size
        self.frames = 0
        self.width = 0
        self.height = 0

    @classmethod
    def create(cls, path: Path, about: Mapping[str, Any]) -> Self:
        """Create the data and index files. Raises `OSError`."""
        line = json.dumps({"format": "padrec", "version": VERSION, **about}).encode() + b"\n"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        data = os.open(path, flags, 0o600)
        try:
            _write_all(data, line)
            index = os.open(path.with_suffix(INDEX_SUFFIX), flags, 0o600)
        except BaseException:
            os.close(data)
            path.unlink()
            raise
        return cls(data, index, len(line))

    def append_picture(self, frame: ScreenFrame) -> None:
        """Append a picture. Raises `OSError`; the file may then end with an incomplete picture."""
        head = {
            "n": self.frames,
            "at": round(frame.at, 4),
            "width": frame.width,
            "height": frame.height,
            "bytes": len(frame.data),
        }
        line = json.dumps(head, separators=(",", ":")).encode() + b"\n"
        _write_all(self._data, b"".join((line, frame.data, b"\n")))
        entry = PictureIndexEntry(self.size + len(line), len(frame.data), frame.width, frame.height, frame.at)
        _write_all(self._index, _ENTRY.pack(*entry))
        self.size += len(line) + len(frame.data) + 1
        self.frames += 1
        self.width, self.height = max(self.width, frame.width), max(self.height, frame.height)

    def close(self) -> None:
        for descriptor in (self._data, self._index):
            try:
                os.fsync(descriptor)
            except OSError:
                pass  # Data that could not be written is not in the index either.
            os.close(descriptor)


def read_index_entry(path: Path, number: int) -> PictureIndexEntry:
    """Read the index entry of one picture. Raises `NotFound`."""
    try:
        with path.with_suffix(INDEX_SUFFIX).open("rb") as file:
            file.seek(number * _ENTRY.size)
            found = file.read(_ENTRY.size)
    except (OSError, ValueError, OverflowError):
        found = b""
    if len(found) < _ENTRY.size:
        raise NotFound(f"the recording has no picture {number}")
    return PictureIndexEntry(*_ENTRY.unpack(found))


def read_index_entries(path: Path) -> list[PictureIndexEntry]:
    """Read all index entries."""
    content = path.with_suffix(INDEX_SUFFIX).read_bytes()
    whole = len(content) - len(content) % _ENTRY.size
    return [PictureIndexEntry(*each) for each in _ENTRY.iter_unpack(content[:whole])]


def read_picture(path: Path, entry: PictureIndexEntry) -> bytes:
    """Read the JPEG of an index entry. Raises `NotFound`."""
    try:
        with path.open("rb") as file:
            file.seek(entry.offset)
            data = file.read(entry.size)
    except OSError:
        data = b""
    if len(data) < entry.size:
        raise NotFound("the recording no longer has this picture")
    return data


def repair_padrec(path: Path) -> list[PictureIndexEntry]:
    """Truncate an incomplete last picture, rebuild the index and return its entries."""
    with path.open("r+b") as file:
        found, end = [], 0
        for entry, behind in _scan(file):
            end = behind
            if entry is not None:
                found.append(entry)
        file.truncate(end)
    partial = path.with_suffix(".partial")
    partial.write_bytes(b"".join(_ENTRY.pack(*entry) for entry in found))
    partial.replace(path.with_suffix(INDEX_SUFFIX))
    return found


def _scan(file: BinaryIO) -> Iterator[tuple[PictureIndexEntry | None, int]]:
    """Yield every complete picture with its end offset, after the end offset of the header line."""
    length = os.fstat(file.fileno()).st_size
    head = file.readline(MAX_LINE)
    if not head.endswith(b"\n"):
        return
    end = len(head)
    yield None, end
    while line := file.readline(MAX_LINE):
        try:
            header = json.loads(line)
            size, offset = int(header["bytes"]), end + len(line)
            entry = PictureIndexEntry(offset, size, int(header["width"]), int(header["height"]), float(header["at"]))
            _ENTRY.pack(*entry)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError, struct.error):
            return
        end = offset + size + 1
        if not line.endswith(b"\n") or not 0 <= size <= MAX_PICTURE_SIZE or end > length:
            return
        file.seek(end - 1)
        if file.read(1) != b"\n":
            return
        yield entry, end


def _write_all(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
