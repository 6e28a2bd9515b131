"""Writes and reads the archives that bundles are: gzipped tars of plain files, and nothing else.

The reader is our own because an archive comes from anybody: it looks at nothing but plain headers, and writes only
files whose names it knows.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import tarfile
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from paddock.agents.files import create
from paddock.config.units import format_size
from paddock.errors import InvalidInput, TooLarge

BLOCK = 512
_FILES = re.compile(r"files/([0-9a-f]{64})")
_FILE_TYPES = (b"0", b"\0")
_DIRECTORY = b"5"
_PIECE = 2**20
_MOST_HEADERS = 100_000
_WHAT = "export a session again to get one that is whole"


@dataclass(frozen=True)
class Limits:
    """What may be in an archive."""

    parts: Collection[str]
    """Names of files; besides them `files/SHA256`."""
    part: int
    """Bytes of each part."""
    file: int
    """Bytes of each of the other files."""
    files: int
    whole: int


class Packer:
    """Makes an archive, piece by piece."""

    def __init__(self) -> None:
        self._compressor = zlib.compressobj(level=6, wbits=31)
        self._size = 0

    def whole(self, name: str, data: bytes) -> bytes:
        return self.begin(name, len(data)) + self.add(data) + self.pad()

    def begin(self, name: str, size: int) -> bytes:
        header = tarfile.TarInfo(name)
        header.size, header.mode = size, 0o600
        self._size = size
        return self._compressor.compress(header.tobuf(tarfile.USTAR_FORMAT if size < 8**11 else tarfile.GNU_FORMAT))

    def add(self, data: bytes) -> bytes:
        return self._compressor.compress(data)

    def pad(self) -> bytes:
        return self._compressor.compress(bytes(-self._size % BLOCK))

    def end(self) -> bytes:
        return self._compressor.compress(bytes(2 * BLOCK)) + self._compressor.flush()


def unpack(archive: Path, place: Path, limits: Limits) -> None:
    """Write what is in an archive below a directory. Raises `InvalidInput`, `TooLarge`; what was written stays."""
    try:
        with gzip.open(archive, "rb") as opened:
            _Reader(cast(BinaryIO, opened), place, limits).read()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InvalidInput(f"this is no bundle, or a damaged one ({error}); {_WHAT}") from None


class _Reader:
    def __init__(self, opened: BinaryIO, place: Path, limits: Limits) -> None:
        self._opened = opened
        self._place = place
        self._limits = limits
        self._left = limits.whole
        self._files = 0

    def read(self) -> None:
        (self._place / "files").mkdir(mode=0o700)
        for _ in range(_MOST_HEADERS):
            header = self._take(BLOCK)
            if header == bytes(BLOCK):
                # What follows the end is padding.
                while self._opened.read(_PIECE):
                    self._count(_PIECE)
                return
            self._member(header)
        raise InvalidInput("the bundle has too many files")

    def _member(self, header: bytes) -> None:
        if _number(header[148:156]) != sum(header[:148]) + 8 * 32 + sum(header[156:]):
            raise InvalidInput(f"this is no bundle, or a damaged one; {_WHAT}")
        name = header[:100].split(b"\0", 1)[0].decode(errors="replace").removeprefix("./")
        kind, size = header[156:157], _number(header[124:136])
        if kind == _DIRECTORY and size == 0 and name.rstrip("/") in ("", ".", "files"):
            return
        if kind not in _FILE_TYPES or header[345:500].strip(b"\0"):
            raise InvalidInput(f"the bundle has something in it that is no plain file: {name[:100]!a}")
        named = _FILES.fullmatch(name)
        if named is None and name not in self._limits.parts:
            raise InvalidInput(f"the bundle has a file in it that does not belong there: {name[:100]!a}")
        most = self._limits.part if named is None else self._limits.file
        if size > most:
            raise TooLarge(f"{name} in the bundle is too large; it may have {format_size(most)}")
        if named is not None:
            self._files += 1
            if self._files > self._limits.files:
                raise InvalidInput(f"the bundle has more than {self._limits.files} files")
        digest = self._write(name, size)
        if named is not None and digest != named[1]:
            raise InvalidInput(f"{name} in the bundle is damaged: it is not what its name says")

    def _write(self, name: str, size: int) -> str:
        digest = hashlib.sha256()
        try:
            file = create(self._place / name)
        except FileExistsError:
            raise InvalidInput(f"the bundle has {name} twice") from None
        left = size
        with file:
            while left:
                piece = self._take(min(left, _PIECE))
                left -= len(piece)
                digest.update(piece)
                file.write(piece)
        self._take(-size % BLOCK)
        return digest.hexdigest()

    def _take(self, size: int) -> bytes:
        self._count(size)
        data = self._opened.read(size)
        if len(data) != size:
            raise InvalidInput(f"the bundle breaks off; {_WHAT}")
        return data

    def _count(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise TooLarge(f"a bundle may have {format_size(self._limits.whole)} once it is unpacked")


def _number(field: bytes) -> int:
    digits = field.strip(b" \0")
    if not re.fullmatch(rb"[0-7]{0,12}", digits):
        raise InvalidInput(f"this is no bundle, or a damaged one; {_WHAT}")
    return int(digits or b"0", 8)
